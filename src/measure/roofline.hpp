// Roofline arithmetic: cost and ceilings to intensity, roof and bound.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/kernel.hpp"
#include "measure/case.hpp"
#include "measure/ceilings.hpp"

namespace rooflane {

struct Roof {
  double ai = 0;  // flops / bytes
  double peak_gflops = 0;
  double peak_gb_s = 0;
  std::string level;       // plateau of peak_gb_s
  double roof_gflops = 0;  // min(peak_gflops, ai × peak_gb_s)
  std::string bound;       // compute or memory
  double least_ns = 0;     // the strict roof: max(flops / peak, bytes / bandwidth)
};

// Nothing when the problem does no flops, unless moving bytes is its work, or a ceiling is missing.
// Empty isa, or `baseline` (the scalar variant's): the best target's peak. `path`: PlanFacts' one,
// which may name a unit with a peak of its own.
//
// Warm: the bandwidth at the footprint, the bytes that a run touches. Cold: memory's, the curve's
// far end. A part of a cold run's output stays in the caches when it ends, but each such line was
// first read from memory: the run may be as fast as reading alone.
std::optional<Roof> roof_of(const Problem& problem, const Ceilings& ceilings, std::string_view math,
                            std::string_view isa, int threads, std::string_view device,
                            CacheMode cache = CacheMode::warm, std::string_view path = {});

// Share of the compulsory bytes that are written.
double write_fraction(const Problem& problem);

}  // namespace rooflane
