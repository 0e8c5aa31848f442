// Embedding: rows of a table by their ids. What the variants of this room share; the record and the
// reference are in reference.cpp.
//
//   y[i,j] = table[ids[i],j]      table: [vocab,cols], ids: int32 [n], y: float32 [n,cols]
//
// Values: copied. A float32 table gives its own bits; float16, bfloat16 and q8_0 (a float16 scale
// times an integer of 8 bits, for 32 elements) are exact in float32.
// Ids: 0 <= id < vocab, several may be equal. Plans trust that: `run` of the command line and seeds
// see to it, other callers must (core/domain.hpp).
// Cost: no flops, but one an element of q8_0. Bytes: each id and each element of y once, and of the
// table the rows that are asked for: of n ids drawn at random vocab·(1 - (1 - 1/vocab)^n) differ.
#pragma once

#include "core/variant.hpp"

namespace rooflane::embed {

// What tables are stored in.
inline constexpr DType table_types[] = {&float32, &float16, &bfloat16, &q8_0};
// What a variant that takes all of them meets.
inline constexpr DType operand_types[] = {&float32, &float16, &bfloat16, &q8_0, &int32};

// A row of a q8_0 table is a row of these (core/dtype.hpp).
struct BlockQ8 {
  static constexpr std::int64_t length = 32;
  std::uint16_t scale;  // the bits of a float16
  std::int8_t values[length];
};
static_assert(sizeof(BlockQ8) == 34);

// Operands in memory; strides in bytes of the table's format and in elements of y.
struct Gather {
  const std::byte* table = nullptr;
  std::int64_t table_stride = 0;
  const std::int32_t* ids = nullptr;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  std::int64_t cols = 0;

  Gather() = default;
  explicit Gather(const Operands& operands) {
    const View& from = operands.at("table");
    const View& to = operands.at("y");
    table = static_cast<const std::byte*>(from.data);
    table_stride = static_cast<std::int64_t>(from.dtype->bytes(from.strides[0]));
    ids = operands.at("ids").as<std::int32_t>();
    y = to.f32();
    y_stride = to.strides[0];
    cols = to.cols();
  }
  const std::byte* row_of(std::int64_t i) const { return table + ids[i] * table_stride; }
};

}  // namespace rooflane::embed
