// Measures a device's FMA peak, exp and unfused rates, tensor cores and bandwidth curve with the
// loops of ceilings.cl and mma_peak.cl. Transfers and launches: opencl_bench.cpp.
// Each figure is the best over vector widths, unrolling and numbers of groups, timed by events, so
// that neither launches nor the host's clock are in it.
#include "backends/opencl_ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backends/opencl.hpp"
#include "backends/opencl_bench.hpp"
#include "backends/opencl_features.hpp"
#include "ceilings_cl.hpp"
#include "core/stopwatch.hpp"
#include "mma_peak_cl.hpp"

namespace rooflane::opencl {
namespace {

constexpr int curve_points = 20;
// How many times its seconds a point of the curve may take for what is not needed: a second and a
// third launch, walks beside the one that was best before. As in measure/bandwidth.cpp.
constexpr double overrun = 10;

// Vectors and chains worth trying. A core needs latency × ports = 4 × 2 to 5 × 2 chains of full
// vectors; GPUs take theirs from the number of items as well.
struct Shape {
  int v;
  int unroll;
};

std::string options_of(const Shape& shape) {
  return fmt::format("-DV={} -DUNROLL={}", shape.v, shape.unroll);
}

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
    KernelCall kernel = bench.kernel(ceilings_cl, options_of(shape), name);
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

// Instructions for products of matrices and dot products: the ceiling that each has, under its name
// in rows.
struct ProductUnit {
  const char* math;
  const char* path;
  const char* option;  // of mma_peak.cl
  double operations;   // of a warp's product, multiplies and adds
};
constexpr ProductUnit unit_tf32 = {"tf32", "", "-DUNIT_TF32=1", 2 * 16 * 8 * 8};
constexpr ProductUnit unit_f16 = {"f16", "mma.m16n8k16.f16", "-DUNIT_F16=1", 2 * 16 * 8 * 16};
constexpr ProductUnit unit_bf16 = {"bf16", "mma.m16n8k16.bf16", "-DUNIT_BF16=1", 2 * 16 * 8 * 16};
constexpr ProductUnit unit_s8 = {"int8", "mma.m16n8k32.s8", "-DUNIT_S8=1", 2 * 16 * 8 * 32};
constexpr ProductUnit unit_dp4a = {"int8", "dp4a", "-DUNIT_DP4A=1", 2 * 32 * 4 * 4};

// Best rate of one, in 1e9 operations a second.
double product_gflops(DeviceBench& bench, const ProductUnit& unit, double seconds) {
  constexpr std::array chain_counts = {4, 8, 16};
  constexpr std::size_t lanes = 32, values_per_lane = 6;
  // Whole waves of groups with 8, 4 or 3 groups resident, as 4, 8 and 16 chains leave registers
  // for.
  const Grid grid{bench.units() * 24, 256};
  const DeviceBuffer sink(bench.context(), grid.groups * grid.group_items * sizeof(float));
  std::array<float, lanes * values_per_lane> values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.5F + static_cast<float>(i * 37 % values.size()) / (2 * values.size());
  }
  const DeviceBuffer start(bench.context(), sizeof values);
  bench.write(start, values.data());
  double best = 0;
  for (const int chains : chain_counts) {
    KernelCall kernel =
        bench.kernel(mma_peak_cl, fmt::format("{} -DCHAINS={}", unit.option, chains), "mma_peak");
    const auto warps = grid.groups * grid.group_items / lanes;
    const Stopwatch watch;
    double steps = 256;
    for (int run = 0; run < 3 || watch.seconds() < seconds / chain_counts.size(); ++run) {
      kernel.set_args(bench.context(), start.get(), sink.get(), static_cast<cl_int>(steps));
      const double ns = bench.time_kernel_ns(kernel, grid);
      best = std::max(
          best, unit.operations * std::floor(steps) * chains * static_cast<double>(warps) / ns);
      steps = std::clamp(steps * bench.launch_ns() / ns, 64.0, 1e8);
    }
  }
  return best;
}

// For devices that have tensor cores; units that take tf32 take bf16 and 8-bit integers too. A
// float32 product of operands split in two parts takes three products of parts (the fourth is too
// small to count), hence a third of the peak.
void add_tensor_core_peaks(DeviceBench& bench, int device, int threads, double seconds,
                           Ceilings& into) {
  const Features& features = opencl::features(device);
  const std::string& name = bench.context().info().name;
  const auto add = [&](const ProductUnit& unit, bool of_thirds) {
    const double gflops = product_gflops(bench, unit, seconds / 5);
    into.fma.push_back({unit.math, unit.path, threads, name, gflops});
    if (of_thirds) {
      into.fma.push_back({fmt::format("3x{}", unit.math), "", threads, name, gflops / 3});
    }
  };
  if (features.mma_tf32) add(unit_tf32, true);
  if (features.mma_f16) add(unit_f16, true);
  if (!features.mma_tf32) return;
  for (const ProductUnit* unit : {&unit_bf16, &unit_s8, &unit_dp4a}) add(*unit, false);
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
        kernels_.push_back(bench.kernel(ceilings_cl, options_of(walk.shape), name));
      }
    }
  }

  Best measure(int loop, double footprint, double seconds) {
    Best best;
    const bool is_copy = loop == 2;
    const Stopwatch whole;
    const auto time_is_over = [&] { return whole.seconds() > overrun * seconds; };
    std::size_t& first = best_walks_[static_cast<std::size_t>(loop)];
    const std::size_t begin = first;
    for (std::size_t i = 0; i < walks_.size(); ++i) {
      const std::size_t w = (begin + i) % walks_.size();
      const Walk& walk = walks_[w];
      if (best.gb_s > 0 && time_is_over()) break;
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
      const double share = seconds / static_cast<double>(walks_.size());
      for (int run = 0; run < 1 || (run < 3 && !time_is_over()) || watch.seconds() < share; ++run) {
        kernel.set_args(bench_.context(), memory_x_.get(), memory_y_.get(),
                        static_cast<cl_long>(walk.groups), turn, spread, stride, count,
                        static_cast<cl_int>(is_cpu ? passes : 1), cl_int{walk.turns});
        const std::size_t groups = walk.groups * (is_cpu ? 1 : static_cast<std::size_t>(passes));
        const double ns = bench_.time_kernel_ns(kernel, {groups, bench_.group_items()});
        const double gb_s = pass_bytes * passes / ns;
        if (gb_s > best.gb_s) {
          best = {gb_s, walk.text()};
          first = w;
        }
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
  std::array<std::size_t, 3> best_walks_ = {};  // of each loop, at the footprint before
  std::vector<KernelCall> kernels_;
};

std::size_t most_bytes(DeviceBench& bench, std::size_t of_cpu) {
  if (bench.is_cpu()) return std::min(of_cpu, bench.context().info().max_buffer_bytes);
  // Past the last-level cache of any GPU (at most 256 MiB).
  const std::size_t gib = std::size_t{1} << 30;
  return std::min(
      {gib, bench.context().info().global_bytes / 4, bench.context().info().max_buffer_bytes});
}

BandwidthCurve bandwidth_curve(DeviceBench& bench, int threads, double seconds,
                               std::size_t largest_footprint) {
  BandwidthCurve curve;
  curve.threads = threads;
  curve.device = bench.context().info().name;
  const auto most = static_cast<double>(largest_footprint);
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
  return curve;
}

}  // namespace

void measure_ceilings(int device, int threads, double seconds, std::size_t largest_footprint,
                      Ceilings& into) {
  DeviceBench bench(device, threads);
  const std::string& name = bench.context().info().name;
  bench.warm_clock();
  into.fma.push_back({"fp32", "", threads, name, fma_gflops(bench, 0.1 * seconds)});
  add_tensor_core_peaks(bench, device, threads, 0.1 * seconds, into);
  into.rates.push_back(
      {"", threads, name, exp_g_s(bench, 0.05 * seconds), unfused_gflops(bench, 0.05 * seconds)});
  into.bandwidth.push_back(
      bandwidth_curve(bench, threads, 0.6 * seconds, most_bytes(bench, largest_footprint)));
  into.launch.push_back(measure_launch(bench, threads));
  const bool is_known =
      std::any_of(into.transfer.begin(), into.transfer.end(),
                  [&](const TransferCeiling& known) { return known.device == name; });
  if (!is_known) into.transfer.push_back(measure_transfer(bench, 0.1 * seconds));
}

}  // namespace rooflane::opencl
