// The peak of a unit for short operands: its loop in registers (backends/unit_loops.hpp), like
// fma_peak.hpp for multiply-adds. Internal to src/measure; others read ceilings.hpp.
#pragma once

#include "backends/unit_loops.hpp"

namespace rooflane {

// Best G operations/s of all threads together over short repeats filling `seconds`. Throws Error
// when fewer threads run than asked for.
double measure_unit_gflops(const UnitLoop& unit, int threads, double seconds);

}  // namespace rooflane
