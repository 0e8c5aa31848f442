// Weights in blocks on vpdpbusd, for the variant `avx512`. No vector code; see avx512_blocks.cpp.
#pragma once

#include "kernels/gemm/block_unit.hpp"

namespace rooflane::gemm {

// Null: b is not in blocks.
const BlockUnit* avx512_block_unit(DType type);

}  // namespace rooflane::gemm
