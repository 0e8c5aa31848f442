// The order of edges on a device, and the plan that uses it. See opencl_segments.hpp.
#include "kernels/common/opencl_segments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/opencl.hpp"
#include "segments_cl.hpp"

namespace rooflane::common {
namespace {

// How edges are sorted: `chunks` items, by `bits` bits of the segment's number at a time.
struct Sort {
  std::int64_t chunks;
  int bits;
  int passes;
  std::int64_t keys() const { return std::int64_t{1} << bits; }
};

// A CPU device: a chunk for each of its units, and all bits at once while the counts of a unit stay
// within 4 MiB. Others: 8 bits, so that the counts of as many chunks as give each at least 64
// edges, at most 4096, take 4 MiB too.
Sort sort_of(const Problem& problem, const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  const std::int64_t edges = problem.size("edges");
  const auto segments =
      static_cast<std::uint64_t>(std::max<std::int64_t>(problem.size("segments"), 1));
  const int needed = std::max(static_cast<int>(std::bit_width(segments - 1)), 1);
  if (info.kind == opencl::DeviceKind::cpu) {
    const std::int64_t units = env.threads > 0 ? env.threads : info.compute_units;
    const int bits = std::min(needed, 20);
    return {units, bits, (needed + bits - 1) / bits};
  }
  const int bits = std::min(needed, 8);
  return {std::clamp<std::int64_t>(edges / 64, 1, 4096), bits, (needed + bits - 1) / bits};
}

bool is_sorted(const Problem& problem) { return problem.flag("sorted"); }

opencl::Launch items(std::int64_t count, std::int64_t group) {
  return {static_cast<std::size_t>((count + group - 1) / group), static_cast<std::size_t>(group)};
}

// Bytes that the order takes beside operands.
double order_bytes(const Problem& problem, const Environment& env) {
  const double starts = 4 * (problem.value("segments") + 1);
  if (is_sorted(problem)) return starts;
  const Sort sort = sort_of(problem, env);
  const double orders = 4 * problem.value("edges") * (sort.passes > 1 ? 2 : 1);
  return starts + orders + 4 * static_cast<double>(sort.chunks * sort.keys());
}

}  // namespace

std::optional<std::string> segments_unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = opencl::unsupported_anywhere(problem, env, 0)) return reason;
  return opencl::unsupported_anywhere(problem, env, order_bytes(problem, env));
}

std::vector<Tuning> segments_tunings(const Problem& problem, const Environment& env) {
  return item_tunings(problem.size("cols"), env);
}

opencl::KernelCall SegmentPlan::room_kernel(const char* name) {
  return kernel(segments_cl, options_, name);
}

SegmentPlan::SegmentPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
    : DevicePlan(problem, tuning, env),
      edges_(static_cast<cl_int>(problem.size("edges"))),
      segments_(static_cast<cl_int>(problem.size("segments"))) {
  const Sort sort = sort_of(problem, env);
  chunks_ = static_cast<cl_int>(sort.chunks);
  scan_ = opencl::device(env.device).kind == opencl::DeviceKind::cpu ? 1 : 256;
  options_ = opencl::defines(tuning) + fmt::format(" -DCHUNKS={} -DSCAN={}", sort.chunks, scan_);
  start_ = workspace(static_cast<std::size_t>(segments_ + 1) * sizeof(cl_int));
  if (!is_sorted(problem) && edges_ > 0) {
    const auto bytes = static_cast<std::size_t>(edges_) * sizeof(cl_int);
    cl_mem counts = workspace(static_cast<std::size_t>(sort.chunks * sort.keys()) * sizeof(cl_int));
    cl_mem to = workspace(bytes);
    cl_mem from = sort.passes > 1 ? workspace(bytes) : to;
    const auto mask = static_cast<cl_int>(sort.keys() - 1);
    const cl_long counted = sort.chunks * sort.keys();
    for (int pass = 0; pass < sort.passes; ++pass) {
      const cl_int first = pass == 0 ? 1 : 0, shift = pass * sort.bits;
      Pass& calls = passes_.emplace_back(Pass{
          room_kernel("segment_count"), room_kernel("segment_scan"), room_kernel("segment_place")});
      calls.count.set_args(context(), copy_of("segment"), from, counts, edges_, first, shift, mask,
                           static_cast<cl_int>(sort.keys()));
      calls.scan.set_args(context(), counts, counted);
      calls.place.set_args(context(), copy_of("segment"), from, counts, to, edges_, first, shift,
                           mask);
      order_ = to;
      std::swap(from, to);
    }
  }
  starts_ = room_kernel("segment_starts");
  starts_.set_args(context(), copy_of("segment"), order(), start_, edges_, segments_, ordered());
  size_ = item_launch(segments_, tuning);
  call_ = room_kernel(problem.kernel().name);
  const cl_long cols = problem.size("cols");
  call_.set_args(context(), copy_of("x"), order(), start_, copy_of("y"), segments_, cols,
                 ordered());
}

void SegmentPlan::enqueue() {
  const std::int64_t group = std::min<std::int64_t>(chunks_, 64);
  for (const Pass& pass : passes_) {
    launch(pass.count, items(chunks_, group));
    launch(pass.scan, items(scan_, scan_));
    launch(pass.place, items(chunks_, group));
  }
  launch(starts_, items(std::int64_t{edges_} + 1, 64));
  launch(call_, size_);
}

}  // namespace rooflane::common
