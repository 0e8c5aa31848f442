// A transposed copy of float32 as kernels pack it: blocks of a vector's rows × 4 columns,
// transposed in registers. Untimed; calibrate.cpp times it. Internal to src/measure.
#pragma once

#include <cstdint>

namespace rooflane {

// to[c·n + r] = from[r·n + c] for a square of n × n, n a multiple of 16; no overlap. At the best
// ISA target of this CPU.
void transpose_square(const float* from, std::int64_t n, float* to);

}  // namespace rooflane
