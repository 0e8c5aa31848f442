// Order statistics and bootstrap intervals of samples. Pure functions, deterministic in the seed.
#pragma once

#include <cstdint>
#include <span>

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

}  // namespace rooflane
