// Activation functions, variant `opencl`: activation.cl; how elements are laid over work-items in
// kernels/common/opencl_elements.hpp.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "activation_cl.hpp"
#include "generated_catalogue.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/common/opencl_elements.hpp"

namespace rooflane::activation {
namespace {

class OpenclPlan final : public common::OpenclElementsPlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : OpenclElementsPlan(problem, tuning, env) {
    const cl_long elements = problem.size("rows") * problem.size("cols");
    const bool is_gated = problem.flag("gate");
    const std::string options =
        fmt::format(" -DKIND={} -DGATE={:d}", static_cast<int>(kind_of(problem)), is_gated);
    if (is_gated) {
      prepare(activation_cl, "activation", options, elements, copy_of("x"), copy_of("y"), elements,
              copy_of("g"));
    } else {
      prepare(activation_cl, "activation", options, elements, copy_of("x"), copy_of("y"), elements);
    }
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

}  // namespace rooflane::activation
