// Rates of operations other than multiply-adds, at one ISA target: exp and unfused float
// operations. Loops in registers as in fma_peak.hpp; that of exp is the kernels' own
// (core/exp_loop.hpp). Internal to src/measure; others read
// ceilings.hpp.
#pragma once

#include <cstdint>

namespace rooflane {

struct UnfusedLoop {
  // On each of the loop's independent vectors a = max((a + z)·x, y) - y, `steps` times; vector i
  // starts at x + i; the sum of all vectors' first lanes. x = 0.5, y = 0.25, z = 1 lead to a = 0.5.
  float (*run)(std::int64_t steps, float x, float y, float z);
  double flops_per_step;  // 4 × vectors × lanes
  int vectors;
};

// `target` from resolve_isa.
UnfusedLoop unfused_loop(std::int64_t target);

// G exps/s and unfused GFLOP/s of all threads together.
struct MathRates {
  double exp_g_s = 0;
  double unfused_gflops = 0;
};

// Best of short repeats filling `seconds`, half for each. Throws Error when fewer threads run than
// asked for.
MathRates measure_math_rates(std::int64_t target, int threads, double seconds);

}  // namespace rooflane
