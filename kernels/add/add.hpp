// Addition: what the variants of this room share. The record and the reference are in
// reference.cpp.
//
//   y[i,j] = x[i,j] + r[i,j]        x, r, y: [rows,cols]
//   broadcast=1: y[i,j] = x[i,j] + r[j]        r: [cols]
//
// What a model adds to its residual stream, and a bias. y may be x.
// Values: NaN where either is, and where infinities of both signs meet.
// Cost: 1 flop and 12 bytes an element (8, and 4 a column, with broadcast=1); half of the bytes for
// float16 and bfloat16, all tensors of one type, which are added as float32.
// Tolerance: |error| <= u·|y|, u = 2^-24: one rounding.
//
// So short that memory alone decides. What helps: y past the caches, which spares the read of each
// of its lines; rows without gaps as one; elements of 16 bits converted in registers.
#pragma once

#include "kernels/common/elements.hpp"

namespace rooflane::add {

// Elements worth a thread: 2 to 4 µs of one core in cache, what starting threads takes.
inline constexpr std::int64_t least_share = 65536;

}  // namespace rooflane::add
