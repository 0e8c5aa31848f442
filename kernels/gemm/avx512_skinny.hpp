// Products of few rows of a with b as it lies, by vectors: what `amx`, too, uses there, as every
// CPU with tiles has these instructions. See avx512.cpp.
#pragma once

#include <cstdint>

#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

inline constexpr std::int64_t skinny_rows = 8;  // at most

template <class Element>
inline constexpr std::int64_t lane_elements = word_bytes /
                                              static_cast<std::int64_t>(sizeof(Element));
// Lanes of a row of a: whole vectors, and a line away from a power of two, at which rows would
// share sets of L1.
inline std::int64_t row_lanes(std::int64_t k, std::int64_t of_lane) {
  constexpr std::int64_t vector = 16;
  return ((k + of_lane - 1) / of_lane + vector - 1) / vector * vector + vector;
}

FewRows avx512_few_bfloat16();  // vdpbf16ps
FewRows avx512_few_integers();  // vpdpbusd: a is unsigned

}  // namespace rooflane::gemm
