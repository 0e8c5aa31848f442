// Products of rows of 8-bit integers with weights in GGUF's blocks (math int8-dynamic) by vpdpbusd,
// for the variant `avx512`. See avx512_blocks.cpp.
//
// A lane is 32 bits: 4 integers that follow one another along k. A block of 32 elements of k, the
// unit's step, is 8 lanes. Of each block and element of c: step · scale · (Σ q·w - zero·Σ q), where
// q are the row's integers and w the weight's, made unsigned by `zero`; with a minimum step ·
// (scale · Σ q·w + minimum · Σ q). A block's sum is exact as integer and rounded once as real
// number: products of scales (float16) and minima with Σ q have fewer bits than a float32.
//   A micro-panel  [blocks][8 + 2][rows]: 8 lanes, the steps (float), and what Σ q adds to the
//   sums:
//                  -zero·Σ q as integer, or where there is a minimum Σ q as float
//   B micro-panel  [blocks][8 + 2][nr]: 8 lanes, the scales and minima (float)
#pragma once

#include <optional>

#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// Nothing: b is not in blocks.
std::optional<Unit> avx512_block_unit(DType type);

}  // namespace rooflane::gemm
