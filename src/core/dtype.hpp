// Number formats: one record each says everything that generic code needs, so that a further format
// is one entry: it is parsed, seeded, verified, benchmarked and written like the others.
// Conversions round to nearest, ties to even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rooflane {

struct NumberFormat;
using DType = const NumberFormat*;

// How stored integers stand for real numbers: value = scale · integer + zero, with one scale for a
// block of elements (stored before them) or for a channel (in a tensor of its own). No bits: the
// stored numbers are the values.
struct Quantisation {
  enum class Per { block, channel };
  int bits = 0;
  DType scale = nullptr;  // the scale's own format
  DType zero = nullptr;   // null: zero is 0
  Per per = Per::block;
};

struct NumberFormat {
  std::string_view name;        // "bfloat16": rows, messages
  std::string_view short_name;  // "bf16": parameters
  std::string_view npy;         // NumPy's descr; of block formats that of their bytes
  // So many elements along the last axis are stored together, in so many bytes.
  std::int64_t block;
  std::size_t block_bytes;
  // Largest relative error of rounding to it, of block formats in relation to the block's largest
  // element; 0: integers, which are exact within their range.
  double unit_roundoff;
  double smallest;  // the least positive value
  double largest;   // finite value
  double least;     // the lowest one: -largest, 0 of unsigned integers
  // `count` elements, a multiple of `block`, from or to memory of any alignment. `decode` is exact.
  // `encode` rounds once; beyond the largest value it gives infinity, or where there is none the
  // largest; NaN becomes 0 where the format has none.
  void (*decode)(const void* from, double* to, std::int64_t count);
  void (*encode)(const double* from, void* to, std::int64_t count);
  Quantisation quantisation = {};

  bool is_integer() const { return unit_roundoff == 0; }
  // Bytes of `count` elements, a multiple of `block`.
  std::size_t bytes(std::int64_t count) const {
    return static_cast<std::size_t>(count / block) * block_bytes;
  }
};

extern const NumberFormat float64, float32, float16, bfloat16, int8, uint8, int32, int64;
// int8 with a float32 scale for each column, in a tensor of its own.
extern const NumberFormat int8_per_channel;
// Blocks of 32 along a row, as llama.cpp's GGUF files store them: a float16 scale before 8-bit or
// 4-bit integers; q4_1 has a float16 minimum beside it.
// Source: github.com/ggml-org/ggml, docs/gguf.md and ggml-quants.c (block_q8_0, block_q4_0,
// block_q4_1).
extern const NumberFormat q8_0, q4_0, q4_1;

std::span<const DType> all_dtypes();
// By either name; null: there is none.
DType find_dtype(std::string_view name);

std::size_t size_of(DType dtype);  // bytes of one block, of most formats one element
std::string_view name_of(DType dtype);

}  // namespace rooflane
