// LayerNorm and RMSNorm on a device. See opencl_norm.hpp.
#include "kernels/common/opencl_norm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/residual.hpp"
#include "norm_cl.hpp"
#include "norm_once_cl.hpp"

namespace rooflane::common {
namespace {

class NormPlan final : public OpenclRowPlan {
 public:
  NormPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : OpenclRowPlan(problem, tuning, env) {
    const cl_long rows = problem.size("rows"), cols = problem.size("cols");
    // The root of an eps that is too small for float32 still counts beside numbers with squares too
    // small for it, and keeps a constant row from dividing 0 by 0.
    const double eps = problem.value("eps");
    const auto eps_root = static_cast<cl_float>(
        eps > 0 ? std::max(std::sqrt(eps), double{std::numeric_limits<float>::min()}) : eps);
    const bool centred = has_beta(problem);
    const Sources sources = {.loop = norm_cl,
                             .once = norm_once_cl,
                             .kernel_name = "norm",
                             .options = centred ? " -DCENTRED=1" : " -DCENTRED=0"};
    if (centred) {
      prepare(sources, copy_of("x"), copy_of("gamma"), copy_of("beta"), copy_of("y"), rows, cols,
              eps_root);
    } else {
      prepare(sources, copy_of("x"), copy_of("gamma"), copy_of("y"), rows, cols, eps_root);
    }
  }

 private:
  static bool has_beta(const Problem& problem) {
    const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const TensorSpec& tensor) { return tensor.name == "beta"; });
  }
};

}  // namespace

std::optional<std::string> norm_unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = residual_refusal(problem)) return reason;
  return opencl::unsupported_anywhere(problem, env, 0);
}

std::unique_ptr<Plan> norm_plan(const Problem& problem, const Tuning& tuning,
                                const Environment& env) {
  return std::make_unique<NormPlan>(problem, tuning, env);
}

}  // namespace rooflane::common
