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
  std::int64_t rows;  // at most most_converted_rows
  const std::uint8_t* b;
  std::int64_t row_bytes;
  std::int64_t k, cols;
  float* sums;
  std::int64_t ld;
  const std::uint8_t* end;  // of b
};
inline constexpr std::int64_t most_converted_rows = 8;

// How far apart rows of a as float32 are.
inline std::int64_t decoded_row(std::int64_t k) { return (k + 31) / 32 * 32; }

using MultiplyFewFunction = void (*)(const FewRowsCall&);
MultiplyFewFunction multiply_few_decoded(std::int64_t target);

}  // namespace rooflane::gemm
