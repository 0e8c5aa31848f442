// What hwy_converted.cpp does for a plan (hwy_converted_plan.cpp) at each ISA target. No vector
// code.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace rooflane::gemm {

// to[rows][count], `ld` apart, float32 from rows of `type`, those of int8 per channel times
// `scale`.
struct DecodeCall {
  DType type;
  const std::uint8_t* from;
  std::int64_t row_bytes;
  std::int64_t rows, count;
  const float* scale;  // per row; null: 1
  float* to;
  std::int64_t ld;
};

// sums[rows][cols] = a · rows of b, where a is skinny.
struct SkinnyConvertedCall {
  DType type;      // of b
  const float* a;  // rows `lda` apart, padded with zeros to a block
  std::int64_t lda;
  std::int64_t rows;  // at most most_converted_rows
  const std::uint8_t* b;
  std::int64_t row_bytes;
  const float* scale;
  std::int64_t k, cols;
  float* sums;
  std::int64_t ld;
  const std::uint8_t* end;  // of b: nothing behind it is prefetched
};
inline constexpr std::int64_t most_converted_rows = 8;

struct ConvertedFunctions {
  void (*decode)(const DecodeCall&);
  void (*multiply_skinny)(const SkinnyConvertedCall&);
  void (*narrow)(DType, const float* from, void* to, std::int64_t count);
};
ConvertedFunctions converted_functions(std::int64_t target);

}  // namespace rooflane::gemm
