// Activation functions: what the variants of this room share. The record and the reference are in
// reference.cpp.
//
//   y[i,j] = f(x[i,j])               x, y: [rows,cols]
//   gate=1: y[i,j] = f(x[i,j])·g[i,j]      g: [rows,cols]
//
//   kind        f(x)                                        flops
//   relu        max(x, 0)                                     1
//   gelu        x·Φ(x), Φ(x) = (1 + erf(x/√2))/2              5   Hendrycks & Gimpel, 1606.08415
//   gelu_tanh   x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))      9   the same
//   silu        x / (1 + exp(-x))                             4   Elfwing et al., 1702.03118
//   tanh        tanh(x)                                       1
//
// gate=1 with silu is the product of SwiGLU, with gelu of GEGLU (Shazeer, arXiv 2002.05202). y may
// be x.
// Values: NaN where x is; at -inf gelu, gelu_tanh and silu are NaN (-inf·0), at +inf inf.
// Cost: flops of the table an element, exp, erf and tanh counted as one like each operation, 1 more
// with gate=1; 1 exp for all but relu; 8 bytes, 12 with gate=1, half of it for float16 and
// bfloat16, all tensors of one type, which are computed with as float32. Tolerance, u = 2^-24:
// |error| <= 8u·|y| for relu, silu (+ |x|·2^-126: exp below the normal numbers may be 0) and tanh.
// gelu: 8u·|x|·Φ(|x|), which the sum 1 + erf keeps where x is negative; gelu_tanh the same with its
// own Φ, and the four roundings of tanh's argument t, worth 8u·|x|·Φ·(1 - Φ)·|t|. With gate=1 that
// times |g|, and u·|y|. 2^-126 more throughout: what is below the normal numbers may be flushed.
// Plain formulas may lose as much again.
//
// Dead ends. tanh for gelu_tanh: x / (1 + exp(-2t)) costs the same and keeps the digits of negative
// x.
#pragma once

#include <string_view>

#include "kernels/common/activations.hpp"
#include "kernels/common/elements.hpp"

namespace rooflane::activation {

using Kind = common::Activation;
inline constexpr std::string_view kinds[] = {"relu", "gelu", "gelu_tanh", "silu", "tanh"};

inline Kind kind_of(const Problem& problem) {
  return static_cast<Kind>(static_cast<int>(problem.value("kind")));
}

// Elements worth a thread: 2 to 4 µs of one core in cache, what starting threads takes.
inline std::int64_t least_share(Kind kind) { return kind == Kind::relu ? 65536 : 16384; }

}  // namespace rooflane::activation
