// Order statistics and bootstrap intervals of samples. Pure functions, deterministic in the seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rooflane {

// Quantile q in [0,1] with linear interpolation between order statistics (Hyndman & Fan type 7,
// NumPy's default). NaN when empty.
double quantile(std::span<const double> samples, double q);
inline double median(std::span<const double> samples) { return quantile(samples, 0.5); }

struct Summary {
  int count = 0;
  double min = 0, p20 = 0, p50 = 0, p80 = 0, p99 = 0, mean = 0, stdev = 0;  // stdev: n-1
  double noise_pct = 0;  // 100 × median absolute deviation / median
};
// Every field is NaN when empty; stdev is 0 for one sample.
Summary summarise(std::span<const double> samples);

struct Interval {
  double low = 0;
  double high = 0;
  bool contains(double x) const { return low <= x && x <= high; }
};
// 95 % percentile-bootstrap interval of the median (2000 resamples). NaN when empty, a point for
// one sample.
Interval median_interval(std::span<const double> samples, std::uint64_t seed);

// Half the width of the 95 % interval of the median in per cent of the median, free of any
// distribution: between the order statistics n/2 ∓ 0.98 √n (Conover, Practical Nonparametric
// Statistics, section 3.2). Below 6 samples no such interval exists: NaN.
double median_half_width_pct(std::span<const double> samples);

// P(T > t) of Student's distribution with df > 0 degrees of freedom, which need not be whole.
double student_tail(double t, double df);
// The t with P(T > t) = tail, 0 < tail < 0.5.
double student_quantile(double tail, double df);

// An estimate with its standard error and the degrees of freedom behind the error; an error that
// nothing is known of is NaN, and so are the interval's ends.
struct Estimate {
  double value = 0;
  double error = 0;
  double df = 0;
  Interval interval() const;  // 95 %, by Student's distribution
  // Of "the true value lies within ±margin": the largest probability, over all such values, of an
  // estimate at least as far from 0.
  double p_beyond(double margin) const;
};

// The mean over launches of the median of each one's rounds. Its error is that of a bootstrap over
// launches, then over the rounds in each (Davison and Hinkley, Bootstrap Methods and their
// Application, 1997, section 3.8), times sqrt(n/(n-1)): resampling n launches sees only (n-1)/n of
// their variance, and percentiles of it are far too narrow at n = 3 (Hesterberg, What Teachers
// Should Know about the Bootstrap, 2015); hence also n-1 degrees of freedom. A single launch shows
// only how much its rounds differ, not what a fresh process would change: there n counts rounds,
// and the interval is too narrow. Of a single round no error is known. Needs a round in each
// launch.
Estimate estimate_over_launches(std::span<const std::vector<double>> launches, std::uint64_t seed);

// The logarithm of a figure from its 95 % interval, as of a normal distribution.
Estimate estimate_from_interval(double value, Interval interval);

// The mean of independent estimates, at least one; degrees of freedom after Welch.
Estimate mean_of(std::span<const Estimate> estimates);

// x - y of independent estimates; degrees of freedom after Welch (Biometrika 34, 1947).
Estimate difference(const Estimate& x, const Estimate& y);

// p-values made comparable with the share of false discoveries allowed among all that are called
// one, in the order given (Benjamini and Hochberg, 1995). NaN stays NaN and is not counted.
std::vector<double> adjusted_for_false_discoveries(std::span<const double> p_values);

}  // namespace rooflane
