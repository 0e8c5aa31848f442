// The FMA peak of one ISA target: a loop of independent multiply-adds in registers. Loads, stores
// and everything else that bounds real kernels are absent. Internal to src/measure; others read
// ceilings.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/unit_loops.hpp"

namespace rooflane {

struct FmaLoop {
  // Performs `steps` multiply-adds a = a·x + y on each of the loop's independent vectors; the
  // result depends on all of them. Choose x, y so that a stays finite (x = 0.5, y = 1).
  float (*run)(std::int64_t steps, float x, float y);
  double flops_per_step;  // 2 × vectors × lanes
  int vectors;            // independent accumulators
};

// `target` from resolve_isa.
FmaLoop fma_loop(std::int64_t target);

// As fma_loop, of int16 by pmaddwd with the addition that it needs; none but on x86-64.
std::optional<UnitLoop> pair_loop(std::int64_t target);

// Best GFLOP/s of all threads together over short repeats filling `seconds`. Throws Error when
// fewer threads run than asked for.
double measure_fma_gflops(std::int64_t target, int threads, double seconds);

}  // namespace rooflane
