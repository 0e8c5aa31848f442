// The opencl variants of segment_sum and segment_softmax, which differ in their kernel only: the
// plan finds the order of the edges on the device, then runs the kernel of the room's name, all of
// segments.cl; how items are laid over segments: opencl_items.hpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/opencl_plan.hpp"
#include "kernels/common/opencl_items.hpp"

namespace rooflane::common {

std::optional<std::string> segments_unsupported(const Problem& problem, const Environment& env);
std::vector<Tuning> segments_tunings(const Problem& problem, const Environment& env);

class SegmentPlan final : public opencl::DevicePlan {
 public:
  SegmentPlan(const Problem& problem, const Tuning& tuning, const Environment& env);

 private:
  struct Pass {
    opencl::KernelCall count, scan, place;
  };

  void enqueue() override;
  opencl::KernelCall room_kernel(const char* name);
  // Edges segment by segment; where they come so it is not read, and something else.
  cl_mem order() const { return order_ != nullptr ? order_ : start_; }
  cl_int ordered() const { return order_ != nullptr ? 1 : 0; }

  std::string options_;
  cl_int edges_, segments_;
  cl_int chunks_, scan_;
  cl_mem order_ = nullptr;
  cl_mem start_ = nullptr;  // [segments+1]
  std::vector<Pass> passes_;
  opencl::KernelCall starts_;
  opencl::Launch size_;
  opencl::KernelCall call_;
};

// The record of the variant `self` of a kernel.
template <const Variant& self>
constexpr Variant segment_variant(const Kernel& kernel, std::span<const DType> dtypes) {
  return {.name = "opencl",
          .kernel = &kernel,
          .backend = &opencl::backend,
          .threads = Threads::device,
          .tunables = item_tunables,
          .unsupported = segments_unsupported,
          .tunings = segments_tunings,
          .plan = [](const Problem& problem, const Tuning& tuning, const Environment& env,
                     const Operands&) -> std::unique_ptr<Plan> {
            require_tuning(self, problem, env, tuning);
            return std::make_unique<SegmentPlan>(problem,
                                                 complete_tuning(self, problem, env, tuning), env);
          },
          .tuning_defect = item_defect,
          .dtypes = dtypes};
}

}  // namespace rooflane::common
