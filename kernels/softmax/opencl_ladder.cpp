// Softmax, the ladder of `opencl`: lays out the grids of softmax_ladder.cl. softmax.hpp lists the
// ideas in order.
#include <fmt/format.h>

#include "kernels/common/opencl_ladder.hpp"
#include "kernels/softmax/softmax.hpp"
#include "softmax_ladder_cl.hpp"

namespace rooflane::softmax {
namespace {

class LadderPlan final : public common::OpenclRung {
 public:
  LadderPlan(const Problem& problem, const Tuning& step, const Environment& env, const Operands&)
      : OpenclRung(problem, step, env) {
    require_no_options(problem, step);
    const cl_long rows = problem.size("rows");
    const cl_long cols = problem.size("cols");
    static constexpr const char* names[] = {"softmax_naive", "softmax_group", "softmax_vectors"};
    const std::int64_t items = side() * side();
    opencl::KernelCall call =
        kernel(softmax_ladder_cl, fmt::format(" -DV=4 -DLX={}", items), names[this->step()]);
    call.set_args(context(), copy_of("x"), copy_of("y"), rows, cols);
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

}  // namespace rooflane::softmax
