// A device's queue and clock, and its link to the host. See opencl_bench.hpp.
#include "backends/opencl_bench.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ceilings_cl.hpp"
#include "core/buffer.hpp"
#include "core/statistics.hpp"
#include "core/stopwatch.hpp"

namespace rooflane::opencl {

void DeviceBench::enqueue(const KernelCall& kernel, const Grid& grid, cl_event* event) {
  const std::size_t global = grid.groups * grid.group_items;
  context_->check(clEnqueueNDRangeKernel(queue_.get(), kernel.get(), 1, nullptr, &global,
                                         &grid.group_items, 0, nullptr, event),
                  "clEnqueueNDRangeKernel");
}

void DeviceBench::fill(const DeviceBuffer& memory) {
  const float value = 1;
  context_->check(
      clEnqueueFillBuffer(queue_.get(), memory.get(), &value, sizeof value, 0,
                          memory.bytes() / sizeof value * sizeof value, 0, nullptr, nullptr),
      "clEnqueueFillBuffer");
  finish();
}

void DeviceBench::write(const DeviceBuffer& memory, const void* from) {
  context_->check(clEnqueueWriteBuffer(queue_.get(), memory.get(), CL_TRUE, 0, memory.bytes(), from,
                                       0, nullptr, nullptr),
                  "clEnqueueWriteBuffer");
}

int DeviceBench::warm_clock() {
  if (is_cpu()) return 0;
  constexpr int alike = 5;            // launches that agree, one after the other
  constexpr double agreement = 0.01;  // clocks rise in larger steps
  constexpr double most_seconds = 0.5;
  constexpr int chains = 8;
  const Grid grid{units() * 8, group_items()};
  const std::vector<float> ones(chains, 1.0F);
  const DeviceBuffer start(*context_, chains * sizeof(float));
  const DeviceBuffer sink(*context_, grid.groups * grid.group_items * sizeof(float));
  write(start, ones.data());
  KernelCall call = kernel(ceilings_cl, fmt::format("-DV=1 -DUNROLL={}", chains), "fma_peak");
  // A launch of about a millisecond, as measured at the clock that the device has now.
  double steps = 1024;
  double previous = 0;
  int agreed = 0;
  int launches = 0;
  const Stopwatch watch;
  while (agreed < alike && watch.seconds() < most_seconds) {
    call.set_args(*context_, start.get(), sink.get(), cl_float{0.999999F}, cl_float{1e-6F},
                  static_cast<cl_int>(steps));
    const double per_step = time_kernel_ns(call, grid) / std::floor(steps);
    agreed = std::abs(per_step - previous) <= agreement * per_step ? agreed + 1 : 0;
    previous = per_step;
    steps = std::clamp(launch_ns() / per_step, 64.0, 1e8);
    ++launches;
  }
  return launches;
}

TransferCeiling measure_transfer(DeviceBench& bench, double seconds) {
  constexpr double most_bytes = 128.0 * 1024 * 1024;
  const Context& context = bench.context();
  const auto bytes = static_cast<std::size_t>(
      std::min(most_bytes, static_cast<double>(context.info().max_buffer_bytes) / 4));
  const DeviceBuffer there(context, bytes);
  const Buffer ordinary(bytes);
  std::memset(ordinary.data(), 0, bytes);
  const PinnedBuffer pinned(context, bench.queue(), bytes);
  std::memset(pinned.data(), 0, bytes);

  TransferCeiling rates;
  rates.device = context.info().name;
  const auto measure = [&](void* host, double& to_gb_s, double& from_gb_s) {
    const double to_ns = bench.time_ns([&](cl_event* event) {
      context.check(clEnqueueWriteBuffer(bench.queue(), there.get(), CL_FALSE, 0, bytes, host, 0,
                                         nullptr, event),
                    "clEnqueueWriteBuffer");
    });
    const double from_ns = bench.time_ns([&](cl_event* event) {
      context.check(clEnqueueReadBuffer(bench.queue(), there.get(), CL_FALSE, 0, bytes, host, 0,
                                        nullptr, event),
                    "clEnqueueReadBuffer");
    });
    to_gb_s = std::max(to_gb_s, static_cast<double>(bytes) / to_ns);
    from_gb_s = std::max(from_gb_s, static_cast<double>(bytes) / from_ns);
  };
  const Stopwatch watch;
  for (int run = 0; run < 2 || watch.seconds() < seconds; ++run) {
    measure(ordinary.data(), rates.pageable_h2d_gb_s, rates.pageable_d2h_gb_s);
    measure(pinned.data(), rates.pinned_h2d_gb_s, rates.pinned_d2h_gb_s);
  }
  rates.h2d_gb_s = std::max(rates.pageable_h2d_gb_s, rates.pinned_h2d_gb_s);
  rates.d2h_gb_s = std::max(rates.pageable_d2h_gb_s, rates.pinned_d2h_gb_s);
  return rates;
}

LaunchCeiling measure_launch(DeviceBench& bench, int threads) {
  constexpr int launches = 201;
  KernelCall empty = bench.kernel("__kernel void empty(int none) {}", "", "empty");
  empty.set_args(bench.context(), cl_int{0});
  const Grid grid{1, 1};
  std::vector<double> host_ns, device_ns;
  for (int i = 0; i < launches; ++i) {
    const Stopwatch watch;
    device_ns.push_back(bench.time_kernel_ns(empty, grid));
    // The event's two questions are in it: tenths of a microsecond.
    host_ns.push_back(watch.seconds() * 1e9);
  }
  return {bench.context().info().name, threads, median(host_ns), median(device_ns)};
}

}  // namespace rooflane::opencl
