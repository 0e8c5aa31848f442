// A product by a plan of the product alone, and what follows it (epilogue.hpp) in passes of their
// own over c: for peers that have none of it, and as the last rung of hwy's ladder.
#pragma once

#include <functional>
#include <memory>

#include "core/variant.hpp"
#include "kernels/gemm/hwy_epilogue.hpp"

namespace rooflane::gemm {

// Makes a plan of a problem without epilogue and gate; gate=1 takes two.
using MakePlan =
    std::function<std::unique_ptr<Plan>(const Problem& product, const Operands& constants)>;
// `tuning`: the one that facts() returns.
std::unique_ptr<Plan> separate_plan(const Problem& problem, const Tuning& tuning,
                                    const Environment& env, EpilogueFunction function,
                                    const Operands& constants, const MakePlan& make);

}  // namespace rooflane::gemm
