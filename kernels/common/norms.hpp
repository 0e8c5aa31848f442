// What LayerNorm and RMSNorm share: which rows float32 can compute, and 1/sigma.
#pragma once

#include <cmath>
#include <limits>

namespace rooflane::common {

// The least mean square of float32, without eps, that has lost nothing that 1/sqrt(mean + eps)
// shows: underflow costs each square at most 2^-150, 2^-30 of what is least.
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

}  // namespace rooflane::common
