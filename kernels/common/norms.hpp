// What LayerNorm and RMSNorm share: moments of rows, 1/sigma, and which rows float32 can compute.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/machine.hpp"

namespace rooflane::common {

// The least mean square in float32, without eps, from which 1/sqrt(mean + eps) is still accurate:
// underflow costs each square at most 2^-150, which is 2^-30 of this value.
inline double least_mean_square(double eps) { return 0x1p-120 - eps; }

// True when a sum of n squares in float32 neither overflowed nor underflowed. Not true of NaN.
inline bool squares_hold(double squares, double n, double eps) {
  return squares <= std::numeric_limits<float>::max() && squares >= least_mean_square(eps) * n;
}

// True when float32 can also write the row: x - mean does not overflow, because |x - mean| is at
// most sqrt(n)·sigma, nor a sum of two inputs near the mean, and 1/sigma is a normal number. Not
// true of NaN.
inline bool float_writes(double mean, double scale) {
  return std::abs(mean) <= 0x1p126 && scale >= 0x1p-96 && scale <= 0x1p96;
}

// True when x, y, gamma and beta of a row are more than L1 holds: hwy writes such rows a few
// together, gamma and beta loaded once for all of them. (A Zen 5 of 48 KiB: 0.83 times the speed
// with 2048 elements, neither gain nor loss with 3072, 1.2 times with 4096. A Zen 4 of 32 KiB: 0.87
// with 2048, 1.0 to 1.15 with 2200 to 2560, 1.45 with 3000.)
inline bool grouped(std::size_t row_bytes) { return 4 * row_bytes > machine().l1d_bytes; }

// Count, mean and sum of squared distances from the mean of some elements; RMSNorm's mean is 0. In
// double, so that a row of many blocks loses nothing.
struct Moments {
  std::int64_t count = 0;
  double mean = 0;
  double squares = 0;
  bool wide = false;  // float32 had lost the squares of some of them
};

// The two sets of elements together.
inline Moments merge(const Moments& a, const Moments& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const std::int64_t count = a.count + b.count;
  const double weight = static_cast<double>(b.count) / static_cast<double>(count);
  const double apart = b.mean - a.mean;
  return {count, a.mean + apart * weight,
          a.squares + b.squares + apart * apart * static_cast<double>(a.count) * weight,
          a.wide || b.wide};
}

// 1 / sqrt(var + eps).
inline double scale_of(const Moments& moments, double eps) {
  const double variance = moments.squares / static_cast<double>(moments.count);
  return 1 / std::sqrt(variance + eps);
}

}  // namespace rooflane::common
