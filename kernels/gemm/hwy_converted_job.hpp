// Few rows of a, as float32, against rows of b that are decoded as they are read
// (hwy_converted.cpp).
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// sums[rows][cols] = a · rows of b, where a is skinny.
struct SkinnyConvertedCall {
  DType type;      // of b
  const float* a;  // rows `lda` apart, padded with zeros to a block
  std::int64_t lda;
  std::int64_t rows;  // 1 to 4, or most_converted_rows
  const std::uint8_t* b;
  std::int64_t row_bytes;
  const float* scale;
  std::int64_t k, cols;
  float* sums;
  std::int64_t ld;
};
// 5 to 8 rows are computed as 8, the missing ones zero: each number of rows is code for every
// format and ISA target.
inline constexpr std::int64_t most_converted_rows = 8;

// Rows of a as float32: how many, and how far apart.
inline std::int64_t decoded_rows(std::int64_t rows) {
  return rows <= 4 ? rows : most_converted_rows;
}
inline std::int64_t decoded_row(std::int64_t k) { return (k + 31) / 32 * 32; }

using MultiplyFewFunction = void (*)(const FewRowsCall&);
MultiplyFewFunction multiply_few_decoded(std::int64_t target);

}  // namespace rooflane::gemm
