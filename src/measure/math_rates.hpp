// Rates of what the maths needs beside multiply-adds, at one ISA target: exp and unfused float
// operations. Loops in registers as in fma_peak.hpp. Internal to src/measure; others read
// ceilings.hpp.
#pragma once

#include <cstdint>

namespace rooflane {

struct MathLoops {
  // exp(x) by kernels/common/exp-inl.h, `steps` × exps_per_step times; the last result.
  float (*run_exp)(std::int64_t steps, float x);
  // On each of the loop's independent vectors a = max((a + z)·x, y) - y, `steps` times; vector i
  // starts at x + i; the sum of all vectors' first lanes. x = 0.5, y = 0.25, z = 1 lead to a = 0.5.
  float (*run_unfused)(std::int64_t steps, float x, float y, float z);
  double exps_per_step;
  double flops_per_step;  // of the unfused loop: 4 × vectors × lanes
  int vectors;            // of the unfused loop
};

// `target` from resolve_isa.
MathLoops math_loops(std::int64_t target);

// G exps/s and unfused GFLOP/s of all threads together.
struct MathRates {
  double exp_g_s = 0;
  double unfused_gflops = 0;
};

// Best of short repeats filling `seconds`, half for each. Throws Error when fewer threads run than
// asked for.
MathRates measure_math_rates(std::int64_t target, int threads, double seconds);

}  // namespace rooflane
