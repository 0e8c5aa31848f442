// The largest elements of each row: what the variants of this room share. The record and the
// reference are in reference.cpp.
//
//   values[r,0..k), ids[r,0..k) = the k largest of x[r,0..cols) and their columns, largest first
//   x: [rows,cols], values: [rows,k], ids: int32 [rows,k], 1 <= k <= cols; k=1 is argmax
//
// Sampling: the candidates among a model's logits.
// Order: of equal values the lower id comes first, -0 and +0 being equal. NaN counts as larger than
// every number, as in NumPy's argmax and PyTorch's topk, and among NaN the lower id comes first.
// Values are copied.
// Cost: 1 flop an element, the comparison that nobody can spare; x, values and ids once each.
// Tolerance: values and ids are exact. Ids that order equal values in another way are INACCURATE,
// as plain sums are elsewhere: libraries promise no order of equals.
//
// What hwy does. k=1: a running maximum in each lane and the group of vectors where it rose last;
// the first element of the first such group that equals the largest lane is the answer. NaN is seen
// by a sum beside, and then looked for. Larger k: a row is cut into a few times k chunks; the k-th
// largest of their maxima is a value that at least k elements reach, so that a second pass collects
// few more than k candidates, which are sorted.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/variant.hpp"

namespace rooflane::topk {

inline constexpr DType operand_types[] = {&float32, &int32};

// An element and its column.
struct Found {
  float value;
  std::int32_t id;
};

// The order above. A strict one: ids differ.
inline bool before(const Found& a, const Found& b) {
  const bool a_is_nan = std::isnan(a.value), b_is_nan = std::isnan(b.value);
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && a.value != b.value) return a.value > b.value;
  return a.id < b.id;
}

// Operands in memory; strides in elements.
struct Rows {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  float* values = nullptr;
  std::int64_t values_stride = 0;
  std::int32_t* ids = nullptr;
  std::int64_t ids_stride = 0;

  Rows() = default;
  explicit Rows(const Operands& operands)
      : x(operands.at("x").f32()),
        x_stride(operands.at("x").strides[0]),
        values(operands.at("values").f32()),
        values_stride(operands.at("values").strides[0]),
        ids(operands.at("ids").as<std::int32_t>()),
        ids_stride(operands.at("ids").strides[0]) {}

  void write(std::int64_t row, const Found* found, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      values[row * values_stride + i] = found[i].value;
      ids[row * ids_stride + i] = found[i].id;
    }
  }
};

}  // namespace rooflane::topk
