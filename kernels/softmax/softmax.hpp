// Softmax: what the variants of this room share. The record and the reference are in reference.cpp.
//
//   y[r,i] = exp(x[r,i] - max_j x[r,j]) / sum_j exp(x[r,j] - max_j x[r,j])     x, y: [rows,cols]
//
// scale=S and mask=1: S·x[r] + mask[r mod mask_rows] replaces x[r]. The mask, [mask_rows,cols], has
// x's format. mask_rows divides rows: a mask [q,kv] serves scores [batch,heads,q,kv], and 1 is one
// row for all. S·x + mask is not stored in memory.
// Subtracting the maximum changes nothing in exact arithmetic and keeps exp from overflowing.
// Values: NaN in a row makes the whole row NaN, so does +inf (inf - inf); -inf weighs zero; a row
// of nothing but -inf is NaN. This is what NumPy and PyTorch give.
// Cost: 5 flops an element (max, subtract, exp counted as one, add, scale), 1 exp, 8 bytes; 4 where
// x and y are float16 or bfloat16, which are computed with as float32.
// Tolerance: |error| <= (8 + |x_i - max|)·u·y_i + 2^-126, u = 2^-24. The subtraction's rounding is
// worth |x_i - max|·u in the exponent; exp, sum, reciprocal and product share the 8; results below
// the smallest normal float may be flushed. A plain float32 sum of the row may lose
// (8 + sqrt(cols))·u·y_i more. With scale or mask every term errs by e_j = 2u·(|S·x_j| + |s_j|) in
// the exponent, s_j = S·x_j + mask_j, which may make of y_i anything between exp(s_i ± e_i - max)
// over Σ exp(s_j ∓ e_j - max): e_i·y_i + y_i·Σ e_j·y_j where the e_j are small.
//
// The ladder: ideas from the plainest on, as ladder.cpp has them and `bench --ladder -k softmax`
// measures them. Figures are times over the rung before on one core of a Zen 5 (AVX-512), for rows
// of 2048 (in L1) and of 1048576 (longer than L2).
//   0 naive       Three passes: maximum, libm's expf and its sum, division.
//   1 vectorised  Vectors, an exp without branches or calls, one division per row: 24 and 11 times.
//   2 online      Maximum and sum together, block by block, the sum rescaled when the maximum grows
//                 (Milakov & Gimelshein, arXiv 1805.02867; two passes: Dukhan & Ablavatski, arXiv
//                 2001.04438). Memory is read twice and written once, for a second exp per element:
//                 0.7 and 1.0 times.
//   3 threaded    Rows shared among threads: 1.8 and 1.3 times on two.
//   hwy           Rows that fit the cache are visited once, each exp kept, and while a row is
//                 computed the one before it is written and the one after it prefetched; online for
//                 longer ones; stores past the caches; a long row shared by all threads; several
//                 short rows in a vector.
// Dead ends. Online normalisation of rows that stay in cache (0.7 times, above): reading them again
// costs less than a second exp. Highway's own Exp, made for every float and 0.9 ULP: a third of the
// speed of one that is good to 3 ULP where x - max is not positive.
//
// The ladder of opencl (softmax_ladder.cl), for a GPU: 0 naive, an item per row; 1 group, a group
// per row, where neighbouring items read neighbouring memory; 2 vectors, accesses of 16 bytes. The
// variant opencl also reads rows once, into registers or local memory, and splits long rows over
// groups.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "kernels/common/rows.hpp"

namespace rooflane::softmax {

// The ladders of hwy (ladder.cpp) and opencl (opencl_ladder.cpp).
extern const Rung ladder[4];
extern const Rung opencl_ladder[3];

// Why code that takes x as it is cannot serve the problem; nothing when it can.
std::optional<std::string> option_refusal(const Problem& problem);
// For a ladder's rung: throws Error(unavailable) with that reason.
void require_no_options(const Problem& problem, const Tuning& step);

// Maximum and sum of exp(x - max) of some elements. The maximum is at least -FLT_MAX, so that
// elements of -inf weigh zero whatever the others are. `wide`: it left float32.
struct Partial {
  double max = std::numeric_limits<float>::lowest();
  double sum = 0;
  bool wide = false;
};

// The two sets of elements together; what weighs nothing has no say in the maximum. In double, so
// that a row of many blocks loses nothing.
inline Partial merge(const Partial& a, const Partial& b) {
  const bool wide = a.wide || b.wide;
  if (a.sum == 0 || b.sum == 0) {
    const Partial& one = a.sum == 0 ? b : a;
    return {one.max, one.sum, wide};
  }
  const Partial& high = a.max > b.max ? a : b;
  const Partial& low = a.max > b.max ? b : a;
  return {high.max, high.sum + low.sum * std::exp(low.max - high.max), wide};
}

}  // namespace rooflane::softmax
