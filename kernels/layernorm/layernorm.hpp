// LayerNorm: what the variants of this room share. The record and the reference are in
// reference.cpp.
//
//   mean[r] = sum_j x[r,j] / cols          var[r] = sum_j (x[r,j] - mean[r])² / cols   (biased)
//   y[r,i] = (x[r,i] - mean[r]) / sqrt(var[r] + eps) · gamma[i] + beta[i]
//
// x, y: [rows,cols]; gamma, beta: [cols]. (Ba, Kiros & Hinton, arXiv 1607.06450.) residual=1: x is
// everywhere x + residual, a second input like it, which is added where the row is read, so that
// the sum crosses no memory; 1 flop an element more, and to the tolerance 3u·|gamma|·(|x - mean| +
// |mean|
// + sigma)/sigma.
// Values: NaN or an infinity in a row makes the whole row NaN; so does a constant row when eps is 0
// (0/0). Wherever the result is a number in double, it is one here too: if squares or distances
// leave float32, the row is computed in double (common/double_row-inl.h). The ladder's rungs lack
// that.
// Cost: 7 flops an element (add for the mean; subtract, square, add for the variance; scale,
// gamma, beta), 8 bytes an element and 8 a column for gamma and beta.
// Tolerance: |error| <= (8 + sqrt(cols))·u·(|gamma|(|x - mean| + |mean|)/sigma + |beta|)
// + 2^-126·max(|gamma|, 1), for what is below the smallest normal float may be flushed; u = 2^-24,
// sigma = sqrt(var + eps): roundings of sums of cols terms grow like sqrt(cols), and a float32 mean
// is only good to |mean|·u. Plain float32 sums may lose as much again. Tensors may be float16 or
// bfloat16, all of one type, and are computed with as float32.
//
// The ladder: ideas from the plainest on, as ladder.cpp has them and `bench --ladder -k layernorm`
// measures them. Figures are times over the rung before on one core of a Zen 5 (AVX-512), for rows
// of 768 (512 of them, in L3) and of 1048576 (longer than L2).
//   0 naive       Three passes in double: mean, squared distances, result.
//   1 vectorised  Vectors, several sums at a time, one division per row: 9.5 and 4 times. The mean
//                 is that of a sum in double and is subtracted as two floats, so that elements near
//                 it keep their digits.
//   2 one visit   Mean and squares of a block while it is in L1, blocks merged (Chan, Golub &
//                 LeVeque, "Updating formulae and a pairwise algorithm for computing sample
//                 variances", 1979): 1.0 and 1.1 times.
//   3 threaded    Rows shared among threads: 1.7 and 1.3 times on two.
//   hwy           Both sums in one walk over the row, the squares about a pivot; other rows
//                 prefetched or written meanwhile; stores past the caches; a long row shared by all
//                 threads; several short rows in a vector.
// Dead ends. E[x²] - E[x]² is never formed from the elements themselves: at mean 1e4 and variance 1
// nothing of it is right. A float32 sum for the mean, compensated or not, errs by more than the
// bound of an element that sits on the mean.
//
// The ladder of opencl (layernorm_ladder.cl), for a GPU: 0 naive, an item per row; 1 group, a group
// per row, where neighbouring items read neighbouring memory; 2 vectors, accesses of 16 bytes. The
// variant opencl also reads rows once, into registers or local memory, and splits long rows over
// groups.
#pragma once

#include "kernels/common/norms.hpp"
#include "kernels/common/rows.hpp"

namespace rooflane::layernorm {

// The ladders of hwy (ladder.cpp) and opencl (opencl_ladder.cpp).
extern const Rung ladder[4];
extern const Rung opencl_ladder[3];

using common::Moments;

// Operands of the ladder and of blas.
struct LayerNormOperands : common::TypedRows<float> {
  const float* gamma = nullptr;
  const float* beta = nullptr;

  LayerNormOperands() = default;
  explicit LayerNormOperands(const Operands& operands)
      : TypedRows(operands), gamma(operands.at("gamma").f32()), beta(operands.at("beta").f32()) {}
};

}  // namespace rooflane::layernorm
