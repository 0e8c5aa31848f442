// LayerNorm, the ladder of `opencl`: lays out the grids of layernorm_ladder.cl. layernorm.hpp lists
// the ideas in order.
#include <fmt/format.h>

#include "kernels/common/opencl_ladder.hpp"
#include "kernels/common/residual.hpp"
#include "kernels/layernorm/layernorm.hpp"
#include "layernorm_ladder_cl.hpp"

namespace rooflane::layernorm {
namespace {

class LadderPlan final : public common::OpenclRung {
 public:
  LadderPlan(const Problem& problem, const Tuning& step, const Environment& env, const Operands&)
      : OpenclRung(problem, step, env) {
    common::require_no_residual(problem, step);
    const cl_long rows = problem.size("rows");
    const cl_long cols = problem.size("cols");
    const std::int64_t items = side() * side();
    const char* const name = this->step() == 0                    ? "layernorm_naive"
                             : this->step() == 1 || cols % 4 != 0 ? "layernorm_group"
                                                                  : "layernorm_vectors";
    opencl::KernelCall call =
        kernel(layernorm_ladder_cl, fmt::format(" -DV=4 -DLX={}", items), name);
    call.set_args(context(), copy_of("x"), copy_of("gamma"), copy_of("beta"), copy_of("y"), rows,
                  cols, static_cast<cl_float>(problem.value("eps")));
    set(std::move(call), common::enough(this->step() == 0 ? rows : rows * items, items));
  }
};

constexpr auto rung = common::opencl_rung<LadderPlan>;

}  // namespace

const Rung opencl_ladder[] = {
    {"naive", "one work-item per row", Threads::device, rung},
    {"group", "a group per row: neighbours read neighbours", Threads::device, rung},
    {"vectors", "accesses of 16 bytes", Threads::device, rung},
};

}  // namespace rooflane::layernorm
