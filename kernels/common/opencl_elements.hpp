// What the opencl variants of the elementwise kernels share: how elements are laid over work-items,
// and the plan that launches them. The maths is in the rooms' .cl files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl_plan.hpp"

namespace rooflane::common {

inline constexpr Tunable opencl_element_tunables[] = {
    {"v", "floats per vector: 1, 2, 4, 8 or 16", 1, 16},
    {"chunk", "vectors per work-item, a group's items apart", 1, 16},
    {"items", "work-items per group", 1, 1024},
};

// The search space, the model's first guess at the front.
std::vector<Tuning> opencl_element_tunings(const Problem& problem, const Environment& env);
// What is wrong with the complete tuning on this device; nothing when it will run.
std::optional<std::string> opencl_element_defect(const Problem& problem, const Tuning& tuning,
                                                 const Environment& env);

// One launch over all elements of the problem's `type`; tensors on the device have no gaps.
class OpenclElementsPlan : public opencl::DevicePlan {
 protected:
  OpenclElementsPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env) {}

  // `elements`: how many of y the grid covers. `options`: further macros, " -DKIND=1".
  template <class... Args>
  void prepare(const char* source, const char* name, const std::string& options,
               std::int64_t elements, Args... args) {
    call_.emplace(kernel(source, macros() + options, name));
    call_->set_args(context(), args...);
    size_ = launch_size(elements);
  }

 private:
  void enqueue() final { launch(*call_, size_); }
  std::string macros();
  opencl::Launch launch_size(std::int64_t elements);

  std::optional<opencl::KernelCall> call_;
  opencl::Launch size_{};
};

}  // namespace rooflane::common
