// Measures a device's FMA peak, exp and unfused rates, bandwidth curve and transfer rates with the
// loops of ceilings.cl.
// Each figure is the best over vector widths, unrolling and numbers of groups, timed by events, so
// that neither launches nor the host's clock are in it.
#include "measure/ceilings_opencl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backends/opencl.hpp"
#include "ceilings_cl.hpp"
#include "core/machine.hpp"
#include "measure/bandwidth.hpp"
#include "measure/plateaus.hpp"
#include "measure/together.hpp"

namespace rooflane {
namespace {

using opencl::Context;
using opencl::DeviceBuffer;
using opencl::DeviceKind;
using opencl::KernelCall;

// How long a launch lasts: long against an event's resolution (about 1 µs on GPUs) and the start of
// a kernel (10 µs); on a CPU against the wake-up of all its threads (1 ms when others use it too).
constexpr double gpu_launch_ns = 1e6;
constexpr double cpu_launch_ns = 4e6;
constexpr int curve_points = 20;
constexpr double transfer_bytes = 128.0 * 1024 * 1024;

struct Grid {
  std::size_t groups;
  std::size_t group_items;
};

class DeviceBench {
 public:
  DeviceBench(int device, int threads)
      : context_(Context::open(device, threads)), queue_(context_->queue(true)) {}

  Context& context() { return *context_; }
  double launch_ns() const { return is_cpu() ? cpu_launch_ns : gpu_launch_ns; }
  bool is_cpu() const { return context_->info().kind == DeviceKind::cpu; }
  std::size_t units() const { return static_cast<std::size_t>(context_->compute_units()); }
  std::size_t group_items() const {
    return is_cpu() ? 1 : std::min<std::size_t>(256, context_->info().max_work_group);
  }

  KernelCall kernel(int v, int unroll, const char* name) {
    cl_program program =
        context_->program(ceilings_cl, fmt::format("-DV={} -DUNROLL={}", v, unroll));
    return KernelCall(*context_, program, name);
  }

  double time_kernel_ns(const KernelCall& kernel, const Grid& grid) {
    const std::size_t global = grid.groups * grid.group_items;
    return time_ns([&](cl_event* event) {
      context_->check(clEnqueueNDRangeKernel(queue_.get(), kernel.get(), 1, nullptr, &global,
                                             &grid.group_items, 0, nullptr, event),
                      "clEnqueueNDRangeKernel");
    });
  }

  // Start to end of the command that `enqueue` gives an event to.
  template <class Enqueue>
  double time_ns(Enqueue enqueue) {
    cl_event raw = nullptr;
    enqueue(&raw);
    const opencl::Event event(raw);
    context_->check(clFinish(queue_.get()), "clFinish");
    const auto [start, end] = context_->span_of(event);
    return std::max(1.0, static_cast<double>(end - start));
  }

  void fill(const DeviceBuffer& memory) {
    const float value = 1;
    context_->check(
        clEnqueueFillBuffer(queue_.get(), memory.get(), &value, sizeof value, 0,
                            memory.bytes() / sizeof value * sizeof value, 0, nullptr, nullptr),
        "clEnqueueFillBuffer");
    context_->check(clFinish(queue_.get()), "clFinish");
  }

  void write(const DeviceBuffer& memory, const void* from) {
    context_->check(clEnqueueWriteBuffer(queue_.get(), memory.get(), CL_TRUE, 0, memory.bytes(),
                                         from, 0, nullptr, nullptr),
                    "clEnqueueWriteBuffer");
  }

  cl_command_queue queue() const { return queue_.get(); }

 private:
  std::shared_ptr<Context> context_;
  opencl::Queue queue_;
};

// Vectors and chains worth trying. A core needs latency × ports = 4 × 2 to 5 × 2 chains of full
// vectors; GPUs take theirs from the number of items as well.
struct Shape {
  int v;
  int unroll;
};

std::vector<Shape> fma_shapes(DeviceBench& bench) {
  if (!bench.is_cpu()) return {{1, 8}, {1, 16}, {2, 8}, {4, 4}, {4, 8}};
  const int v = std::min(bench.context().info().vector_floats, 16);
  return {{v, 10}, {v, 12}, {v, 16}};
}

// Best rate, in 1e9 operations a second, of a loop of ceilings.cl that works in registers and does
// `operations` on each lane of each chain in a step; `constants` are its arguments before `steps`.
template <class... Constants>
double register_rate(DeviceBench& bench, const char* name, double operations, double seconds,
                     Constants... constants) {
  const std::vector<Shape> shapes = fma_shapes(bench);
  const Grid grid{bench.units() * (bench.is_cpu() ? 4 : 32), bench.group_items()};
  const DeviceBuffer sink(bench.context(), grid.groups * grid.group_items * sizeof(float));
  // Different start values for every lane of every chain of any shape.
  std::array<float, std::size_t{16} * 16> values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 + static_cast<float>(i) / 256;
  const DeviceBuffer start(bench.context(), sizeof values);
  bench.write(start, values.data());
  double best = 0;
  for (const Shape& shape : shapes) {
    KernelCall kernel = bench.kernel(shape.v, shape.unroll, name);
    const Stopwatch watch;
    double steps = 1024;
    for (int run = 0; run < 3 || watch.seconds() < seconds / static_cast<double>(shapes.size());
         ++run) {
      kernel.set_args(bench.context(), start.get(), sink.get(), constants...,
                      static_cast<cl_int>(steps));
      const double ns = bench.time_kernel_ns(kernel, grid);
      const double done = operations * std::floor(steps) * shape.unroll * shape.v *
                          static_cast<double>(grid.groups * grid.group_items);
      best = std::max(best, done / ns);
      steps = std::clamp(steps * bench.launch_ns() / ns, 64.0, 1e8);
    }
  }
  return best;
}

double fma_gflops(DeviceBench& bench, double seconds) {
  return register_rate(bench, "fma_peak", 2, seconds, cl_float{0.999999F}, cl_float{1e-6F});
}

double exp_g_s(DeviceBench& bench, double seconds) {
  return register_rate(bench, "exp_rate", 1, seconds);
}

double unfused_gflops(DeviceBench& bench, double seconds) {
  return register_rate(bench, "unfused_rate", 4, seconds, cl_float{0.5F}, cl_float{0.25F},
                       cl_float{1});
}

// One way of walking over an array.
struct Walk {
  Shape shape;
  std::size_t groups;
  bool turns = false;  // every second pass backwards
  std::string text() const {
    return fmt::format("float{}, {} at once, {} groups{}", shape.v, shape.unroll, groups,
                       turns ? ", there and back" : "");
  }
};

// How many groups a pass deals the slices on. The groups that one core runs at a time usually lie
// whole multiples of the cores apart, or side by side; the golden section of the cores keeps the
// slices of the next dozen passes away from both. Coprime to the slices, so that all differ.
cl_long turn_between_passes(std::size_t units, std::size_t slices) {
  auto turn = static_cast<std::size_t>(std::round(0.618 * static_cast<double>(units)));
  turn = std::max<std::size_t>(turn, 1);
  while (std::gcd(turn, slices) != 1) ++turn;
  return static_cast<cl_long>(turn);
}

// CPU devices: an item per compute unit walks over its own part, again and again, so that the
// caches of its core count: a plan's threads find their data there too, more of it beyond a cache's
// end than passes in circles (stream_loops.hpp says why). Others: neighbouring items read
// neighbouring vectors, and only caches that all cores share count, since no kernel decides which
// core runs which group.
std::vector<Walk> walks(DeviceBench& bench) {
  const std::size_t units = bench.units();
  if (bench.is_cpu()) {
    const int v = std::min(bench.context().info().vector_floats, 16);
    return {{{v, 8}, units}, {{v, 4}, units, true}, {{v, 8}, units, true}};
  }
  return {{{4, 1}, units * 8}, {{4, 4}, units * 8}, {{4, 4}, units * 16}, {{2, 8}, units * 8}};
}

constexpr std::array<const char*, 3> loop_names = {"read_array", "write_array", "copy_array"};

// Best rate of one loop at one footprint over all walks.
struct Best {
  double gb_s = 0;
  std::string method;
};

class CurveBench {
 public:
  CurveBench(DeviceBench& bench, std::size_t most_bytes)
      : bench_(bench),
        memory_x_(bench.context(), most_bytes),
        memory_y_(bench.context(), most_bytes),
        walks_(walks(bench)) {
    // Every page is touched before anything is timed: untouched ones are all the same zero page.
    bench.fill(memory_x_);
    bench.fill(memory_y_);
    for (const Walk& walk : walks_) {
      for (const char* name : loop_names) {
        kernels_.push_back(bench.kernel(walk.shape.v, walk.shape.unroll, name));
      }
    }
  }

  Best measure(int loop, double footprint, double seconds) {
    Best best;
    const bool is_copy = loop == 2;
    for (std::size_t w = 0; w < walks_.size(); ++w) {
      const Walk& walk = walks_[w];
      const bool is_cpu = bench_.is_cpu();
      const std::size_t items = walk.groups * bench_.group_items();
      const double vector_bytes = 4.0 * walk.shape.v;
      const double array_bytes = is_copy ? footprint / 2 : footprint;
      // Whole steps per item; a footprint too small for every item is left to other walks.
      const double step_bytes = vector_bytes * walk.shape.unroll * static_cast<double>(items);
      const auto steps = static_cast<cl_long>(array_bytes / step_bytes);
      if (steps == 0) continue;
      const cl_long count = steps * walk.shape.unroll;
      const cl_long spread = is_cpu ? count : 1;
      const cl_long stride = is_cpu ? 1 : static_cast<cl_long>(items);
      const double pass_bytes = static_cast<double>(steps) * step_bytes * (is_copy ? 2 : 1);
      KernelCall& kernel = kernels_[w * loop_names.size() + static_cast<std::size_t>(loop)];
      const cl_long turn = is_cpu ? 0 : turn_between_passes(bench_.units(), walk.groups);
      // Some drivers count items in 32 bits.
      const double most_passes = is_cpu ? 1e8 : std::floor(2e9 / static_cast<double>(items));
      const double least_passes = walk.turns ? 2 : 1;
      double passes = least_passes;
      const Stopwatch watch;
      for (int run = 0; run < 3 || watch.seconds() < seconds / static_cast<double>(walks_.size());
           ++run) {
        kernel.set_args(bench_.context(), memory_x_.get(), memory_y_.get(),
                        static_cast<cl_long>(walk.groups), turn, spread, stride, count,
                        static_cast<cl_int>(is_cpu ? passes : 1), cl_int{walk.turns});
        const std::size_t groups = walk.groups * (is_cpu ? 1 : static_cast<std::size_t>(passes));
        const double ns = bench_.time_kernel_ns(kernel, {groups, bench_.group_items()});
        const double gb_s = pass_bytes * passes / ns;
        if (gb_s > best.gb_s) best = {gb_s, walk.text()};
        passes =
            std::clamp(std::round(passes * bench_.launch_ns() / ns), least_passes, most_passes);
      }
    }
    return best;
  }

 private:
  DeviceBench& bench_;
  DeviceBuffer memory_x_, memory_y_;
  std::vector<Walk> walks_;
  std::vector<KernelCall> kernels_;
};

std::size_t largest_footprint(DeviceBench& bench) {
  if (bench.is_cpu())
    return std::min(largest_bandwidth_footprint(), bench.context().info().max_buffer_bytes);
  // Past the last-level cache of any GPU (at most 256 MiB).
  const std::size_t gib = std::size_t{1} << 30;
  return std::min(
      {gib, bench.context().info().global_bytes / 4, bench.context().info().max_buffer_bytes});
}

BandwidthCurve bandwidth_curve(DeviceBench& bench, int threads, double seconds) {
  BandwidthCurve curve;
  curve.threads = threads;
  curve.device = bench.context().info().name;
  const auto most = static_cast<double>(largest_footprint(bench));
  // CPUs: half an L1 cache per unit. Others: one vector per item of eight groups per unit.
  const double least =
      bench.is_cpu() ? 16384.0 * static_cast<double>(bench.units())
                     : 16.0 * 8 * 2 * static_cast<double>(bench.units() * bench.group_items());
  CurveBench loops(bench, static_cast<std::size_t>(most));
  const auto measure = [&](BandwidthPoint& point, int loop, double slot) {
    const Best best = loops.measure(loop, point.footprint_bytes, slot);
    double& held = point.*(std::array{&BandwidthPoint::read_gb_s, &BandwidthPoint::write_gb_s,
                                      &BandwidthPoint::copy_gb_s}[static_cast<std::size_t>(loop)]);
    if (best.gb_s <= held) return;
    held = best.gb_s;
    point.*(std::array{&BandwidthPoint::read_method, &BandwidthPoint::write_method,
                       &BandwidthPoint::copy_method}[static_cast<std::size_t>(loop)]) = best.method;
  };
  const double slot = 0.8 * seconds / (curve_points * 3);
  for (int i = 0; i < curve_points; ++i) {
    const double share = static_cast<double>(i) / (curve_points - 1);
    const double footprint = std::min(most, std::round(least * std::pow(most / least, share)));
    BandwidthPoint point;
    point.footprint_bytes = footprint;
    for (int loop = 0; loop < 3; ++loop) measure(point, loop, slot);
    curve.points.push_back(point);
  }
  // Points that a larger footprint outran are measured again while the time lasts.
  const Stopwatch watch;
  for (int loop = 0; loop < 3; ++loop) {
    const auto rate = std::array{&BandwidthPoint::read_gb_s, &BandwidthPoint::write_gb_s,
                                 &BandwidthPoint::copy_gb_s}[static_cast<std::size_t>(loop)];
    double beyond = 0;
    for (std::size_t i = curve.points.size(); i-- > 0;) {
      BandwidthPoint& point = curve.points[i];
      if (point.*rate < 0.98 * beyond && watch.seconds() < 0.2 * seconds) {
        measure(point, loop, slot);
      }
      beyond = std::max(beyond, point.*rate);
    }
  }
  const auto units = static_cast<double>(bench.units());
  const Machine& cpu = machine();
  curve.plateaus = find_plateaus(
      curve.points, bench.is_cpu() ? std::array{static_cast<double>(cpu.l1d_bytes) * units,
                                                static_cast<double>(cpu.l2_bytes) * units,
                                                static_cast<double>(cpu.l3_bytes)}
                                   : std::array{no_such_level, 0.0, no_such_level});
  return curve;
}

// The better of ordinary and of pinned host memory.
TransferCeiling transfer_rates(DeviceBench& bench, double seconds) {
  const Context& context = bench.context();
  const auto bytes = static_cast<std::size_t>(
      std::min(transfer_bytes, static_cast<double>(context.info().max_buffer_bytes) / 4));
  const DeviceBuffer there(context, bytes);
  const Buffer plain(bytes);
  std::memset(plain.data(), 0, bytes);
  cl_int status = CL_SUCCESS;
  const opencl::Owned<cl_mem, clReleaseMemObject> pinned(clCreateBuffer(
      context.handle(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, nullptr, &status));
  context.check(status, "clCreateBuffer");
  void* pinned_host =
      clEnqueueMapBuffer(bench.queue(), pinned.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes,
                         0, nullptr, nullptr, &status);
  context.check(status, "clEnqueueMapBuffer");
  std::memset(pinned_host, 0, bytes);

  TransferCeiling rates;
  rates.device = context.info().name;
  const auto size = static_cast<double>(bytes);
  const Stopwatch watch;
  for (int run = 0; run < 2 || watch.seconds() < seconds; ++run) {
    for (void* host : {plain.data(), pinned_host}) {
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
      rates.h2d_gb_s = std::max(rates.h2d_gb_s, size / to_ns);
      rates.d2h_gb_s = std::max(rates.d2h_gb_s, size / from_ns);
    }
  }
  clEnqueueUnmapMemObject(bench.queue(), pinned.get(), pinned_host, 0, nullptr, nullptr);
  context.check(clFinish(bench.queue()), "clFinish");
  return rates;
}

}  // namespace

void measure_device_ceilings(int device, int threads, double seconds, Ceilings& into) {
  DeviceBench bench(device, threads);
  const std::string& name = bench.context().info().name;
  into.fma.push_back({"fp32", "", threads, name, fma_gflops(bench, 0.1 * seconds)});
  into.rates.push_back(
      {"", threads, name, exp_g_s(bench, 0.05 * seconds), unfused_gflops(bench, 0.05 * seconds)});
  into.bandwidth.push_back(bandwidth_curve(bench, threads, 0.65 * seconds));
  const bool is_known =
      std::any_of(into.transfer.begin(), into.transfer.end(),
                  [&](const TransferCeiling& known) { return known.device == name; });
  if (!is_known) into.transfer.push_back(transfer_rates(bench, 0.15 * seconds));
}

}  // namespace rooflane
