// What measurements of a device's ceilings share: a queue with events, kernels of .cl texts, timing
// by the device's clock, and a clock brought up to speed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "backends/opencl.hpp"
#include "core/ceilings.hpp"

namespace rooflane::opencl {

struct Grid {
  std::size_t groups;
  std::size_t group_items;
};

class DeviceBench {
 public:
  // Throws Error(unavailable) for what the device cannot do, DeviceError.
  DeviceBench(int device, int threads)
      : context_(Context::open(device, threads)), queue_(context_->queue(true)) {}

  Context& context() { return *context_; }
  cl_command_queue queue() const { return queue_.get(); }
  bool is_cpu() const { return context_->info().kind == DeviceKind::cpu; }
  std::size_t units() const { return static_cast<std::size_t>(context_->compute_units()); }
  std::size_t group_items() const {
    return is_cpu() ? 1 : std::min<std::size_t>(256, context_->info().max_work_group);
  }
  // How long a launch should last: long against an event's resolution (about 1 µs on GPUs) and the
  // start of a kernel (10 µs); on a CPU against the wake-up of all its threads (1 ms when others
  // use it too).
  double launch_ns() const { return is_cpu() ? 4e6 : 1e6; }

  KernelCall kernel(const char* source, const std::string& options, const char* name) {
    return {*context_, context_->program(source, options), name};
  }

  double time_kernel_ns(const KernelCall& kernel, const Grid& grid) {
    return time_ns([&](cl_event* event) { enqueue(kernel, grid, event); });
  }
  void enqueue(const KernelCall& kernel, const Grid& grid, cl_event* event);

  // Start to end, by the device's clock, of the command that `enqueue` gives an event to.
  template <class Enqueue>
  double time_ns(Enqueue enqueue) {
    cl_event raw = nullptr;
    enqueue(&raw);
    const Event event(raw);
    finish();
    const auto [start, end] = context_->span_of(event);
    return std::max(1.0, static_cast<double>(end - start));
  }

  void finish() { context_->check(clFinish(queue_.get()), "clFinish"); }
  void fill(const DeviceBuffer& memory);
  void write(const DeviceBuffer& memory, const void* from);

  // Keeps a device other than a CPU busy with multiply-adds until their time is stable, at most
  // half a second: an idle GPU lowers its clock and takes milliseconds to raise it. Returns the
  // number of launches.
  int warm_clock();

 private:
  std::shared_ptr<Context> context_;
  Queue queue_;
};

// What host and device cost each other: bandwidth of transfers, the time of a kernel that does
// nothing.
TransferCeiling measure_transfer(DeviceBench& bench, double seconds);
LaunchCeiling measure_launch(DeviceBench& bench, int threads);

}  // namespace rooflane::opencl
