// Softmax: what the variants of this room share. The record and the reference are in reference.cpp.
//
//   y[r,i] = exp(x[r,i] - max_j x[r,j]) / sum_j exp(x[r,j] - max_j x[r,j])     x, y: [rows,cols]
//
// Subtracting the maximum changes nothing in exact arithmetic and keeps exp from overflowing.
// Values: NaN in a row makes the whole row NaN, so does +inf (inf - inf); -inf weighs zero; a row
// of nothing but -inf is NaN. This is what NumPy and PyTorch give.
// Cost: 5 flops an element (max, subtract, exp counted as one, add, scale), 1 exp, 8 bytes.
// Tolerance: |error| <= (8 + |x_i - max|)·u·y_i + 2^-126, u = 2^-24. The subtraction's rounding is
// worth |x_i - max|·u in the exponent; exp, sum, reciprocal and product share the 8; results below
// the smallest normal float may be flushed.
//
// The ladder of ideas: three loops (scalar); BLAS for sum and scale (blas); one visit of memory, by
// working on rows that stay in cache (hwy); two visits for rows that do not, by merging the
// maxima and sums of blocks: Milakov & Gimelshein, arXiv 1805.02867; Dukhan & Ablavatski,
// arXiv 2001.04438.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/common/rows.hpp"

namespace rooflane::softmax {

// The ladder of hwy (ladder.cpp).
extern const Rung ladder[4];

// Maximum and sum of exp(x - max) of some elements. The maximum is at least -FLT_MAX, so that
// elements of -inf weigh zero whatever the others are.
struct Partial {
  float max = std::numeric_limits<float>::lowest();
  double sum = 0;
};

// The two sets of elements together. In double, so that a row of many blocks loses nothing.
inline Partial merge(const Partial& a, const Partial& b) {
  const Partial& high = a.max > b.max ? a : b;
  const Partial& low = a.max > b.max ? b : a;
  const double apart = static_cast<double>(low.max) - static_cast<double>(high.max);
  return {high.max, high.sum + low.sum * std::exp(apart)};
}

}  // namespace rooflane::softmax
