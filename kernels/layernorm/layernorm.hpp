// LayerNorm: what the variants of this room share. The record and the reference are in
// reference.cpp.
//
//   mean[r] = sum_j x[r,j] / cols          var[r] = sum_j (x[r,j] - mean[r])² / cols   (biased)
//   y[r,i] = (x[r,i] - mean[r]) / sqrt(var[r] + eps) · gamma[i] + beta[i]
//
// x, y: [rows,cols]; gamma, beta: [cols]. (Ba, Kiros & Hinton, arXiv 1607.06450.)
// Values: NaN or an infinity in a row makes the whole row NaN; so does a constant row when eps is 0
// (0/0). Squares are float32: where (x - mean)² overflows, beyond about 1e19, so does the variance.
// Cost: 7 flops an element (add for the mean; subtract, square, add for the variance; scale,
// gamma, beta), 8 bytes an element and 8 a column for gamma and beta.
// Tolerance: |error| <= (8 + sqrt(cols))·u·(|gamma|(|x - mean| + |mean|)/sigma + |beta|),
// u = 2^-24, sigma = sqrt(var + eps): roundings of sums of cols terms grow like sqrt(cols), and a
// float32 mean is only good to |mean|·u.
//
// The ladder of ideas: two sums and a loop (scalar); level-1 BLAS (blas); one visit of memory with
// the mean of a sum in double, so that elements near the mean keep their digits (hwy); two visits
// where the row does not fit the cache, by merging moments of blocks: Chan, Golub & LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979. E[x²] - E[x]²
// is never formed: at mean 1e4 and variance 1 nothing of it is right.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/rows.hpp"

namespace rooflane::layernorm {

// The ladder of hwy (ladder.cpp).
extern const Rung ladder[4];

// Count, mean and sum of squared distances from the mean of some elements. In double, so that a row
// of many blocks loses nothing.
struct Moments {
  std::int64_t count = 0;
  double mean = 0;
  double squares = 0;
};

// The two sets of elements together.
inline Moments merge(const Moments& a, const Moments& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const std::int64_t count = a.count + b.count;
  const double weight = static_cast<double>(b.count) / static_cast<double>(count);
  const double apart = b.mean - a.mean;
  return {count, a.mean + apart * weight,
          a.squares + b.squares + apart * apart * static_cast<double>(a.count) * weight};
}

// 1 / sqrt(var + eps).
inline float scale_of(const Moments& moments, double eps) {
  const double variance = moments.squares / static_cast<double>(moments.count);
  return static_cast<float>(1 / std::sqrt(variance + eps));
}

// Operands of a CPU plan.
struct LayerNormOperands : common::RowOperands {
  const float* gamma = nullptr;
  const float* beta = nullptr;

  LayerNormOperands() = default;
  explicit LayerNormOperands(const Operands& operands)
      : RowOperands(operands), gamma(operands.at("gamma").f32()), beta(operands.at("beta").f32()) {}
};

}  // namespace rooflane::layernorm
