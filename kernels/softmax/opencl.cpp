// Softmax, variant `opencl`: one group of work-items per row or rows, tree reductions in local
// memory. The kernel stands in softmax.cl; how items are laid over rows in
// kernels/common/opencl_rows.hpp.
#include <memory>

#include "generated_catalogue.hpp"
#include "kernels/common/opencl_rows.hpp"
#include "softmax_cl.hpp"

namespace rooflane::softmax {
namespace {

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  return common::opencl_row_tunings(problem.size("cols"), opencl::device(env.device));
}

class OpenclPlan final : public opencl::DevicePlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env) {
    const cl_long rows = problem.size("rows");
    const cl_long cols = problem.size("cols");
    softmax_ = kernel(softmax_cl, common::opencl_row_options(tuning, cols), "softmax");
    softmax_.set_args(context(), copy_of("x"), copy_of("y"), rows, cols);
    size_ = common::opencl_row_launch(tuning, rows);
  }

 private:
  void enqueue() override { launch(softmax_, size_); }

  opencl::KernelCall softmax_;
  opencl::Launch size_{};
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
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
                        .backend = "opencl",
                        .threads = Threads::device,
                        .tunables = common::opencl_row_tunables,
                        .unsupported = unsupported,
                        .tunings = tunings,
                        .plan = plan,
                        .tuning_defect = common::opencl_row_defect};

}  // namespace rooflane::softmax
