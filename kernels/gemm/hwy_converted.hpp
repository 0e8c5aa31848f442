// GEMM, variant `hwy`, for operands that become float32: short floats and quantised weights, and
// for integers. Next: hwy_converted.cpp, hwy_integers.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/variant.hpp"

namespace rooflane::gemm {

// The instructions that multiply float32 at an ISA target: "avx512-fma", "avx2-fma", "sse4"…
std::string fma_path(std::int64_t target);

// Float operands of any format in fp32, bf16 or f16 (whose products float32 holds exactly).
std::unique_ptr<Plan> converted_plan(const Problem& problem, const Environment& env,
                                     const Operands& constants);
// int8 and int8-dynamic.
std::unique_ptr<Plan> integer_plan(const Problem& problem, const Environment& env,
                                   const Operands& constants);

}  // namespace rooflane::gemm
