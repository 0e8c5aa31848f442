// What the rungs of the opencl ladders share: a plan that launches one kernel on one grid, and the
// size of a group. The kernels are in each room's KERNEL_ladder.cl, plainest first. See Rung in
// core/variant.hpp.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "backends/opencl_plan.hpp"
#include "core/error.hpp"

namespace rooflane::common {

// Derived classes choose kernel, arguments and grid in their constructor.
class OpenclRung : public opencl::DevicePlan {
 protected:
  OpenclRung(const Problem& problem, const Tuning& step, const Environment& env)
      : DevicePlan(problem, step, env) {}

  void set(opencl::KernelCall call, opencl::Launch size) {
    call_ = std::move(call);
    size_ = size;
  }

  std::int64_t step() const { return tuning().get(step_key, 0); }

  // Items of a square group: 16×16, less where the device has no groups of 256, and on a CPU. There
  // a group is a loop over its items, and the part of a large tile outside a small problem costs
  // time.
  std::int64_t side() {
    const opencl::DeviceInfo& info = context().info();
    if (info.kind == opencl::DeviceKind::cpu) return 4;
    return info.max_work_group >= 256 ? 16 : info.max_work_group >= 64 ? 8 : 4;
  }

 private:
  void enqueue() override { launch(call_, size_); }

  opencl::KernelCall call_;
  opencl::Launch size_{};
};

inline std::int64_t ceil_div(std::int64_t length, std::int64_t piece) {
  return (length + piece - 1) / piece;
}

// The groups of `items` that hold at least `count` items.
inline opencl::Launch enough(std::int64_t count, std::int64_t items) {
  return {static_cast<std::size_t>(ceil_div(count, items)), static_cast<std::size_t>(items)};
}

// The function of a rung: Room is a room's class over OpenclRung.
template <class Room>
std::unique_ptr<Plan> opencl_rung(const Problem& problem, const Tuning& step,
                                  const Environment& env, const Operands& constants) {
  return std::make_unique<Room>(problem, step, env, constants);
}

}  // namespace rooflane::common
