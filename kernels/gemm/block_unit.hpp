// Products of rows of 8-bit integers with weights in GGUF's blocks (math int8-dynamic), as
// BlockPlan sees the instructions that form them: sizes, and functions for one format of b. Next:
// block_plan.hpp; the functions: avx512_blocks.cpp.
//
// A lane is 32 bits: 4 integers that follow one another along k. A block of 32 elements of k is 8
// lanes. Of each block and element of c: step · scale · (Σ q·w - zero·Σ q), where q are the row's
// integers and w the weight's, made unsigned by `zero`; with a minimum step · (scale · Σ q·w +
// minimum · Σ q). A block's sum is exact as integer and rounded once as real number: products of
// scales (float16) and minima with Σ q have fewer bits than a float32.
//   A micro-panel  [blocks][10][rows]: 8 lanes, the steps (float), and what Σ q adds to the sums:
//                  -zero·Σ q as integer, or where there is a minimum Σ q as float
//   B micro-panel  [blocks][8 + 2][nr]: 8 lanes, the scales and minima (float)
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace rooflane::gemm {

inline constexpr std::int64_t weights_per_block = 32, lanes_per_block = 8;
inline constexpr std::int64_t words_per_block = lanes_per_block + 2;

// A row of float32 or bfloat16 numbers, in blocks, becomes row `row` of an A micro-panel.
struct QuantiseBlocksCall {
  const void* from;
  bool short_floats;
  std::int64_t inner;  // elements of a row are so far apart
  std::int64_t blocks;
  std::int64_t row, rows;  // of the panel
  std::uint32_t* to;
};

// sums[rows][cols] of rows of b as they lie.
struct SkinnyBlocksCall {
  const std::uint32_t* a;  // A micro-panel
  std::int64_t rows;       // at most skinny_rows
  const std::uint8_t* b;
  std::int64_t row_bytes;
  std::int64_t blocks;
  std::int64_t groups;      // of group_columns rows of b
  const std::uint8_t* end;  // of what may be prefetched
  float* sums;
  std::int64_t ld;
};

// nr rows of b become a B micro-panel.
struct PackBlocksCall {
  const std::uint8_t* b;
  std::int64_t row_bytes;
  std::int64_t blocks;
  std::uint32_t* to;
};

// sums[rows][nr] of an A and a B micro-panel.
struct BlockTileCall {
  const std::uint32_t* a;
  std::int64_t rows;
  const std::uint32_t* b;
  std::int64_t blocks;
  float* sums;
  std::int64_t ld;
};

struct BlockUnit {
  DType type;  // of b
  const char* path;
  std::int64_t skinny_rows;    // up to so many rows of op(a) multiply b as it lies
  std::int64_t group_columns;  // rows of b that are read together
  std::int64_t mr, nr;         // of the micro-tile
  void (*quantise)(const QuantiseBlocksCall&);
  void (*skinny)(const SkinnyBlocksCall&);
  void (*pack)(const PackBlocksCall&);
  void (*tile)(const BlockTileCall&);
};

}  // namespace rooflane::gemm
