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
  Interval interval(double level = 0.95) const;  // by Student's distribution
  // Where the value is a logarithm: half the width of the figure's 95 % interval, in per cent of
  // the figure.
  double half_width_pct() const;
  // The p-value of "the true value lies within ±margin": the largest probability, over all such
  // values, of an estimate at least as far from 0.
  double p_beyond(double margin) const;
};

// The common value of repetitions, each given by its rounds (logarithms of times or of ratios).
//
// A random-effects estimate: a repetition differs from the next by its rounds' noise and by what a
// fresh process and fresh memory change. Its value is the median of its rounds, so that a disturbed
// round has no leverage. The variance of that median comes from the spread of the rounds of all
// repetitions, or of its own where those spread more: a restless repetition weighs less. The
// variance between repetitions is added. Few repetitions say little about it, so it begins at what
// is usual (`usual_repetition_error`), which counts as one further degree of freedom, and is
// corrected by how far the repetitions lie apart (moderated variance: Smyth, Statistical
// Applications in Genetics and Molecular Biology 3, 2004; intervals of few studies: Hartung and
// Knapp, Statistics in Medicine 20, 2001). The mean is Huber's: a repetition that lies far off, by
// a neighbour or by a bad page, counts as one that lies `far` errors off.
//
// Coverage, false winners and power are asserted in tests/statistics_test.cpp, over simulated and
// recorded rounds. A single repetition shows only how its rounds differ: there the rounds are the
// units, and the interval is too narrow. A single round has no known error. At least one
// repetition, each with at least one round.
Estimate estimate_over_repetitions(std::span<const std::vector<double>> repetitions);

// The half width of the 95 % interval of the median, in per cent, from positive samples of a single
// repetition.
double median_half_width_pct(std::span<const double> samples);

// How two times compare, from the estimate of the logarithm of first / second.
enum class PairVerdict { faster, slower, equal, undecided };
// Equal: the 95 % interval lies within ± 2 %; code placement alone makes as much. Faster or slower:
// so at 99 %, since a table holds many pairs and looks at each more than once. A ratio that is not
// known is undecided.
inline constexpr double tie_margin = 0.02;
inline constexpr double winner_level = 0.99;
PairVerdict verdict_of(const Estimate& log_ratio);
// Whether first / second is above `ratio` at winner_level.
bool certainly_above(const Estimate& log_ratio, double ratio);
// How many times as many repetitions would decide an undecided pair, if they went on as those that
// were taken: at least 1.
double repetitions_to_decide(const Estimate& log_ratio);

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
