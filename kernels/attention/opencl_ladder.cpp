// Attention, the ladder of `opencl`: lays out the grids of attention_ladder.cl. attention.hpp lists
// the ideas in order.
#include <fmt/format.h>

#include "attention_ladder_cl.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/common/opencl_ladder.hpp"

namespace rooflane::attention {
namespace {

class LadderPlan final : public common::OpenclRung {
 public:
  LadderPlan(const Problem& problem, const Tuning& step, const Environment& env, const Operands&)
      : OpenclRung(problem, step, env) {
    require_no_options(problem, step);
    const Sizes s(problem);
    static constexpr const char* names[] = {"attention_naive", "attention_group",
                                            "attention_tiled"};
    const std::int64_t items = side() * side();
    opencl::KernelCall call =
        kernel(attention_ladder_cl, fmt::format(" -DV=1 -DSIDE={}", side()), names[this->step()]);
    const std::int64_t heads = s.batch * s.heads;
    call.set_args(context(), copy_of("q"), copy_of("k"), copy_of("v"), copy_of("o"), cl_long{heads},
                  cl_long{s.group()}, cl_long{s.q_len}, cl_long{s.kv_len}, cl_long{s.head_dim},
                  cl_int{s.causal}, static_cast<cl_float>(s.scale));
    const std::int64_t groups = this->step() == 0   ? common::ceil_div(heads * s.q_len, items)
                                : this->step() == 1 ? heads * s.q_len
                                                    : heads * common::ceil_div(s.q_len, side());
    set(std::move(call), {static_cast<std::size_t>(groups), static_cast<std::size_t>(items)});
  }
};

constexpr auto rung = common::opencl_rung<LadderPlan>;

}  // namespace

const Rung opencl_ladder[] = {
    {"naive", "one work-item per query, scores computed twice", Threads::device, rung},
    {"group", "a group per query: weights in local memory, online softmax", Threads::device, rung},
    {"tiled", "16 queries share tiles of keys in local memory", Threads::device, rung},
};

}  // namespace rooflane::attention
