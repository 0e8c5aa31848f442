// Few rows of a, as float32, against rows of b that are decoded as they are read
// (hwy_converted.cpp).
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

inline constexpr std::int64_t most_converted_rows = 8;

// How far apart rows of a as float32 are.
inline std::int64_t decoded_row(std::int64_t k) { return (k + 31) / 32 * 32; }

using MultiplyFewFunction = void (*)(const FewRowsCall&);
MultiplyFewFunction multiply_few_decoded(std::int64_t target);

}  // namespace rooflane::gemm
