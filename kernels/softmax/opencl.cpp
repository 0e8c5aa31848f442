// Softmax, variant `opencl`. The kernels are in softmax_once.cl, where a row is read once into
// registers, and softmax.cl, for rows of any length. kernels/common/opencl_rows.hpp maps items to
// rows.
#include <memory>

#include "generated_catalogue.hpp"
#include "kernels/common/opencl_rows.hpp"
#include "kernels/softmax/softmax.hpp"
#include "softmax_cl.hpp"
#include "softmax_once_cl.hpp"

namespace rooflane::softmax {
namespace {

class OpenclPlan final : public common::OpenclRowPlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : OpenclRowPlan(problem, tuning, env) {
    const cl_long rows = problem.size("rows");
    const cl_long cols = problem.size("cols");
    prepare({.loop = softmax_cl, .once = softmax_once_cl, .kernel_name = "softmax"}, copy_of("x"),
            copy_of("y"), rows, cols);
  }
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = option_refusal(problem)) return reason;
  return opencl::unsupported_anywhere(problem, env, 0);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env) {
  return std::make_unique<OpenclPlan>(problem, tuning, env);
}

}  // namespace

const Variant opencl = common::opencl_row_variant<opencl, plan>(kernel, unsupported, opencl_ladder);

}  // namespace rooflane::softmax
