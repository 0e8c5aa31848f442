// Embedding, variant `opencl`. The kernel is in embed.cl, how items are laid over rows in
// kernels/common/opencl_items.hpp.
#include <memory>

#include "embed_cl.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/opencl_items.hpp"
#include "kernels/embed/embed.hpp"

namespace rooflane::embed {
namespace {

std::string type_option(DType type) {
  if (type == &float16) return " -DFLOAT16";
  if (type == &bfloat16) return " -DBFLOAT16";
  return type == &q8_0 ? " -DQ8" : "";
}

class OpenclPlan final : public opencl::DevicePlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env),
        size_(common::item_launch(problem.size("n"), tuning)),
        call_(kernel(embed_cl, opencl::defines(tuning) + type_option(problem.dtype("table_type")),
                     "embed")) {
    const cl_long n = problem.size("n"), cols = problem.size("cols");
    call_.set_args(context(), copy_of("table"), copy_of("ids"), copy_of("y"), n, cols);
  }

 private:
  void enqueue() override { launch(call_, size_); }

  opencl::Launch size_;
  opencl::KernelCall call_;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  return opencl::unsupported_anywhere(problem, env, 0);
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  return common::item_tunings(problem.size("cols"), env);
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
                        .tunables = common::item_tunables,
                        .unsupported = unsupported,
                        .tunings = tunings,
                        .plan = plan,
                        .tuning_defect = common::item_defect,
                        .dtypes = operand_types};

}  // namespace rooflane::embed
