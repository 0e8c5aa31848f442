// The plan of a product on a unit (unit.hpp): everything that does not depend on the instruction.
// Two paths, as the schedule says:
//   packed    a and b become micro-panels, blocks of which a macro-kernel multiplies. Threads share
//             the micro-panels and pack them as they come to need them: the first thread to need a
//             piece packs it, others pack the next ones or wait for it. There is no barrier.
//             share_a=0 and pack_b=1: each share packs the rows of a, or the columns of b, that it
//             uses itself, into its own L2.
//   few_rows  few rows of a, rows of b as they are stored: each is read once.
#pragma once

#include <memory>

#include "core/variant.hpp"
#include "kernels/gemm/hwy_schedule.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

std::unique_ptr<Plan> unit_plan(const Problem& problem, const Schedule& schedule,
                                const Environment& env, const Operands& constants,
                                const Unit& unit);

}  // namespace rooflane::gemm
