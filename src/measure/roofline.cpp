// Roofline arithmetic. Where the ceilings come from: ceilings.hpp.
#include "measure/roofline.hpp"

#include <algorithm>
#include <limits>

namespace rooflane {

namespace {

// Bytes that a run touches: of operands all, unless ids choose among their rows.
double footprint(const Problem& problem) {
  return std::min(operand_bytes(problem), problem.kernel().cost(problem).bytes);
}

}  // namespace

double write_fraction(const Problem& problem) {
  const double all = footprint(problem);
  if (all <= 0) return 0;
  double written = 0;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (is_written(tensor.role)) written += tensor_bytes(problem, tensor);
  }
  return std::min(1.0, written / all);
}

namespace {

std::optional<MemoryPeak> memory_peak_of(const Problem& problem, const Ceilings& ceilings,
                                         int threads, std::string_view device, CacheMode cache) {
  const double written = write_fraction(problem);
  if (cache == CacheMode::warm) {
    return find_memory_peak(ceilings, footprint(problem), written, threads, device);
  }
  constexpr double beyond_all_caches = std::numeric_limits<double>::infinity();
  auto peak = find_memory_peak(ceilings, beyond_all_caches, written, threads, device);
  const auto reading = find_memory_peak(ceilings, beyond_all_caches, 0, threads, device);
  if (peak) peak->gb_s = std::max(peak->gb_s, reading->gb_s);
  return peak;
}

}  // namespace

std::optional<Roof> roof_of(const Problem& problem, const Ceilings& ceilings, std::string_view math,
                            std::string_view isa, int threads, std::string_view device,
                            CacheMode cache, std::string_view path) {
  const Cost cost = problem.kernel().cost(problem);
  if ((cost.flops <= 0 && !cost.moves) || cost.bytes <= 0) return std::nullopt;
  // `baseline` is the scalar variant's name for what it runs at; it is held against the best
  // target.
  if (isa == "baseline") isa = {};
  const std::optional<double> fma = find_compute_peak(ceilings, math, isa, threads, device, path);
  const std::optional<MemoryPeak> memory =
      memory_peak_of(problem, ceilings, threads, device, cache);
  if (!fma || !memory || *fma <= 0 || memory->gb_s <= 0) return std::nullopt;

  Roof roof;
  roof.ai = cost.flops / cost.bytes;
  roof.peak_gflops = *fma;
  roof.peak_gb_s = memory->gb_s;
  roof.level = memory->level;
  const double memory_gflops = roof.ai * roof.peak_gb_s;
  roof.roof_gflops = std::min(roof.peak_gflops, memory_gflops);
  roof.bound = memory_gflops < roof.peak_gflops ? "memory" : "compute";
  // Flops per GFLOP/s and bytes per GB/s are nanoseconds both.
  roof.least_ns = std::max(cost.flops / roof.peak_gflops, cost.bytes / roof.peak_gb_s);
  return roof;
}

}  // namespace rooflane
