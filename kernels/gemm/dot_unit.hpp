// Units that add several products of short operands to each 32-bit sum (vdpbf16ps, vpdpbusd, AMX's
// tiles), as DotPlan sees them: sizes, and functions compiled for the unit's instructions. What a
// variant has of its own is the micro-kernel; the rest is dot_common-inl.h. Next: dot_plan.hpp.
//
// A lane is 32 bits: 2 bfloat16 or 4 8-bit integers that follow one another along k, the unit's
// group. Panels hold lanes, those of k beyond the end zero:
//   B micro-panel  [lanes of k][nr]
//   A micro-panel  [lanes of k / run][rows][run]; its rows are mr, or fewer in the last one
#pragma once

#include <cstdint>

namespace rooflane::gemm {

// sums[rows][nr], float or int32, `ld` apart, = (add: +=) A micro-panel · B micro-panel; only the
// vectors of the first `cols` columns need be right.
struct MicroCall {
  std::int64_t lanes;  // of k, a multiple of the unit's run
  const std::uint32_t* a;
  const std::uint32_t* b;
  std::int64_t rows, cols;
  std::uint32_t* sums;
  std::int64_t ld;
  bool add;
};

// Vectors of k elements become a panel: vector v begins at from + v·outer, its elements are `inner`
// apart; one of both is 1.
struct PackCall {
  const void* from;
  std::int64_t outer, inner;  // in elements
  std::int64_t k;
  std::int64_t count;  // vectors there are, of `width`
  std::int64_t width;
  std::int64_t lanes;  // of the panel
  std::int64_t run;
  std::uint32_t xor_mask;  // bits of each lane that change: s8 becomes u8 + 128
  std::uint32_t* to;
};

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
  const void* end;            // of b: nothing behind it is prefetched
};
inline constexpr std::int64_t skinny_rows = 8;

struct SkinnyProducts {
  void (*multiply)(const SkinnyCall&);
  const char* path;  // the instruction
  bool shifts_a;     // s8 a is packed as u8, 128 larger
};

// What becomes of sums: a tile of c. c and c0 point at their element (0,0).
struct Output {
  enum class Format { float32, bfloat16, int32 } format;
  float alpha, beta;
  void* c;
  std::int64_t ldc;
  const void* c0;  // null: beta is 0
  std::int64_t ldc0;
  bool integers;                    // sums are
  const std::int32_t* column_sums;  // 128 times these are taken off; null: nothing is
  const float* row_scale;           // of integers that stand for reals; null: none
  const float* column_scale;
};
struct FinishCall {
  const Output* output;
  std::int64_t row, rows, col, cols;  // of the tile
  const std::uint32_t* sums;
  std::int64_t ld;
};

// Rows of float32 or bfloat16 numbers as u8: round(x · 127 / max|x|) + 128; those of float32 as
// bfloat16, without a step.
struct QuantiseCall {
  const void* from;
  bool short_floats;
  std::int64_t inner;  // elements of a row are so far apart
  std::int64_t k;
  void* to;
  float* step;  // max|x| / 127; NaN: the row is not finite
};

struct DotUnit {
  const char* path;    // the instruction
  std::int64_t group;  // elements in a lane
  std::int64_t mr, nr;
  std::int64_t run;
  bool whole_panels;  // the last A micro-panel, too, has mr rows
  bool shifts_a;      // s8 a is packed as u8, 128 larger
  void (*micro)(const MicroCall&);
  SkinnyProducts (*skinny)();
  void (*pack)(const PackCall&);
  // Of the nr columns of a B micro-panel of s8.
  void (*column_sums)(const std::uint32_t* panel, std::int64_t lanes, std::int32_t* to);
  void (*finish)(const FinishCall&);
  void (*convert)(const QuantiseCall&);  // rows of a to what the unit multiplies
  // Around each task on its thread; null: nothing.
  void (*begin)();
  void (*end)();
};

}  // namespace rooflane::gemm
