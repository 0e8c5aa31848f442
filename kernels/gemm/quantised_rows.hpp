// Math int8-dynamic: which elements of op(a) share a scale, and which one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "core/problem.hpp"

namespace rooflane::gemm {

// So many along k of a row: those of a block of b, or all.
inline std::int64_t quantised_together(const Problem& problem) {
  const std::int64_t block = problem.dtype("b_type")->block;
  return block > 1 ? block : std::max<std::int64_t>(problem.size("k"), 1);
}

// Their step, which an integer stands for so many times, and its inverse.
struct QuantisationStep {
  float step;     // NaN: an element is not finite, and the integers are 0
  float inverse;  // 0, too, where it would overflow: the integers are 0
  bool finite;
};
// The step for a largest magnitude, given as bits: the bits of floats are ordered like integers,
// NaN above all.
inline QuantisationStep quantisation_step(std::uint32_t largest_bits) {
  const auto largest = std::bit_cast<float>(largest_bits);
  if (largest_bits >= 0x7F800000) return {std::numeric_limits<float>::quiet_NaN(), 0, false};
  return {largest / 127, largest > 0x1p-120f ? 127 / largest : 0, true};
}

}  // namespace rooflane::gemm
