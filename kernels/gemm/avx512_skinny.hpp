// Products of few rows of a with b as it lies, by vectors: what `amx`, too, uses there, as every
// CPU with tiles has these instructions. See avx512.cpp.
#pragma once

#include <cstddef>

#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// sums[rows][cols] of rows of b as they lie, along k: no packing, where a is skinny.
struct SkinnyCall {
  const std::uint32_t* a;  // rows of `lanes` lanes
  std::int64_t lanes;      // whole vectors of 64 bytes
  std::int64_t rows;       // at most skinny_rows
  const void* b;
  std::int64_t ldb;  // in elements
  std::int64_t k, cols;
  std::uint32_t* sums;
  std::int64_t ld;
  std::int32_t* column_sums;  // of b; null: not asked for
};
inline constexpr std::int64_t skinny_rows = 8;

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
