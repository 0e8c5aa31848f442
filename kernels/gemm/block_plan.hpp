// GEMM of weights in GGUF's blocks with math int8-dynamic, on a unit of block_unit.hpp. op(a) is
// quantised into A micro-panels, block by block. Few rows of it are multiplied by rows of b as they
// lie, which are read once, at memory's speed; else columns of b, as many as stay in L2, become B
// micro-panels that all rows of a pass.
#pragma once

#include <memory>

#include "core/variant.hpp"
#include "kernels/gemm/block_unit.hpp"
#include "kernels/gemm/dot_output.hpp"

namespace rooflane::gemm {

std::unique_ptr<Plan> block_plan(const Problem& problem, const Environment& env,
                                 const Operands& constants, const BlockUnit& unit,
                                 DotOutput::Finish finish);

}  // namespace rooflane::gemm
