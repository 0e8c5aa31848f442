// LayerNorm, variant `opencl`. The kernels stand in layernorm_once.cl, where a row is read once
// into registers, and layernorm.cl, where its length does not matter; how items are laid over rows
// in kernels/common/opencl_rows.hpp.
#include <algorithm>
#include <limits>
#include <memory>

#include "generated_catalogue.hpp"
#include "kernels/common/opencl_rows.hpp"
#include "kernels/common/residual.hpp"
#include "kernels/layernorm/layernorm.hpp"
#include "layernorm_cl.hpp"
#include "layernorm_once_cl.hpp"

namespace rooflane::layernorm {
namespace {

class OpenclPlan final : public common::OpenclRowPlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : OpenclRowPlan(problem, tuning, env) {
    const cl_long rows = problem.size("rows");
    const cl_long cols = problem.size("cols");
    // An eps too small for float32 still keeps a constant row from dividing 0 by 0.
    const double eps = problem.value("eps");
    const auto float_eps = static_cast<cl_float>(
        eps > 0 ? std::max(eps, double{std::numeric_limits<float>::min()}) : eps);
    prepare({.loop = layernorm_cl, .once = layernorm_once_cl, .kernel_name = "layernorm"},
            copy_of("x"), copy_of("gamma"), copy_of("beta"), copy_of("y"), rows, cols, float_eps);
  }
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = common::residual_refusal(problem)) return reason;
  return opencl::unsupported_anywhere(problem, env, 0);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  require_tuning(opencl, problem, env, tuning);
  return std::make_unique<OpenclPlan>(problem, complete_tuning(opencl, problem, env, tuning), env);
}

}  // namespace

const Variant opencl = {.name = "opencl",
                        .kernel = &kernel,
                        .backend = &opencl::backend,
                        .threads = Threads::device,
                        .tunables = common::opencl_row_tunables,
                        .unsupported = unsupported,
                        .tunings = common::opencl_row_tunings,
                        .plan = plan,
                        .tuning_defect = common::opencl_row_defect,
                        .ladder = opencl_ladder,
                        .dtypes = float_types};

}  // namespace rooflane::layernorm
