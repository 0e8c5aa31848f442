// The plan of the CPU's products: gate=1, the epilogue's operands, c = beta·c0, constants and facts
// are the same whatever forms the product (product.hpp).
#pragma once

#include <memory>

#include "core/variant.hpp"
#include "kernels/gemm/product.hpp"

namespace rooflane::gemm {

std::unique_ptr<Plan> driver_plan(const Problem& problem, const Environment& env,
                                  const Operands& constants, const MakeProduct& make);

}  // namespace rooflane::gemm
