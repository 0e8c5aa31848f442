// Patches, variant `opencl`. The kernel is in im2patch.cl, how items are laid over the channels of
// patches in kernels/common/opencl_items.hpp.
#include <memory>

#include "generated_catalogue.hpp"
#include "im2patch_cl.hpp"
#include "kernels/common/opencl_items.hpp"
#include "kernels/im2patch/im2patch.hpp"

namespace rooflane::im2patch {
namespace {

class OpenclPlan final : public opencl::DevicePlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env),
        call_(kernel(im2patch_cl, opencl::defines(tuning), "im2patch")) {
    const std::int64_t patch = problem.size("patch");
    const auto channels = static_cast<cl_int>(problem.size("channels"));
    const auto down = static_cast<cl_int>(problem.size("height") / patch);
    const auto across = static_cast<cl_int>(problem.size("width") / patch);
    const cl_long planes = problem.size("batch") * down * across * channels;
    call_.set_args(context(), copy_of("image"), copy_of("patches"), planes, channels, down, across,
                   static_cast<cl_int>(patch));
    size_ = common::item_launch(planes, tuning);
  }

 private:
  void enqueue() override { launch(call_, size_); }

  opencl::KernelCall call_;
  opencl::Launch size_{};
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  return opencl::unsupported_anywhere(problem, env, 0);
}

// Items share the rows of a patch, so that there are at most as many.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  return common::item_tunings(problem.size("patch") * 4, env);
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
                        .tuning_defect = common::item_defect};

}  // namespace rooflane::im2patch
