// Math int8-dynamic: which elements of op(a) share a scale.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/problem.hpp"

namespace rooflane::gemm {

// So many along k of a row: those of a block of b, or all.
inline std::int64_t quantised_together(const Problem& problem) {
  const std::int64_t block = problem.dtype("b_type")->block;
  return block > 1 ? block : std::max<std::int64_t>(problem.size("k"), 1);
}

}  // namespace rooflane::gemm
