// GEMM, variant `scalar`, for number formats and maths beside floats in fp32. Next:
// scalar_formats.cpp.
#pragma once

#include <memory>

#include "core/variant.hpp"

namespace rooflane::gemm {

// Whether the plan of scalar.cpp, which converts elements where they are used, does not serve.
bool needs_decoding(const Problem& problem, const Environment& env);
std::unique_ptr<Plan> decoding_plan(const Problem& problem, const Environment& env,
                                    const Operands& constants);

}  // namespace rooflane::gemm
