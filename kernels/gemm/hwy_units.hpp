// Highway's units, for an ISA target: float32 multiply-adds of operands in any format of real
// numbers, and pmaddwd of 8-bit integers. See unit.hpp.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// The instructions that multiply float32 at an ISA target: "avx512-fma", "avx2-fma", "sse4"…
std::string fma_path(std::int64_t target);

Unit fma_unit(DType a_type, DType b_type, std::int64_t target);
Unit pair_unit(std::int64_t target);

}  // namespace rooflane::gemm
