// Addition, variant `opencl`: add.cl; how elements are laid over work-items in
// kernels/common/opencl_elements.hpp.
#include <memory>

#include "add_cl.hpp"
#include "generated_catalogue.hpp"
#include "kernels/add/add.hpp"
#include "kernels/common/opencl_elements.hpp"

namespace rooflane::add {
namespace {

class OpenclPlan final : public common::OpenclElementsPlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : OpenclElementsPlan(problem, tuning, env) {
    const cl_long cols = problem.size("cols");
    const cl_long elements = problem.size("rows") * cols;
    prepare(add_cl, "add", problem.flag("broadcast") ? " -DBROADCAST=1" : " -DBROADCAST=0",
            elements, copy_of("x"), copy_of("r"), copy_of("y"), elements, cols);
  }
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
                        .backend = &opencl::backend,
                        .threads = Threads::device,
                        .tunables = common::opencl_element_tunables,
                        .unsupported = unsupported,
                        .tunings = common::opencl_element_tunings,
                        .plan = plan,
                        .tuning_defect = common::opencl_element_defect,
                        .dtypes = float_types};

}  // namespace rooflane::add
