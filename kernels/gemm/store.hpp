// From sums to c, for every unit and format: scales of rows and columns, alpha, beta and c0, the
// epilogue, rounding to c's format. Tile by tile, while sums are in L1 or L2. float32's own
// micro-kernels store in registers (hwy_micro-inl.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/variant.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_epilogue.hpp"

namespace rooflane::gemm {

// Where row i of a tile of c, c0 or the residual begins. Without a division by the block: these
// have none.
inline const std::byte* row_of(const View& view, const Rectangle& at, std::int64_t i) {
  const std::int64_t place = at.batch * view.strides[0] + (at.row + i) * view.strides[1] + at.col;
  return static_cast<const std::byte*>(view.data) +
         place * static_cast<std::int64_t>(view.dtype->block_bytes);
}

// A tile of sums and what they stand for: sum(i,j) · row_scale[i] · column_scale[j].
struct SumTile {
  Rectangle at;               // in c
  const std::uint32_t* sums;  // float or int32, `ld` apart; null: zeros. Whole vectors are read.
  std::int64_t ld;
  bool integers;
  const std::int32_t* column_sums;  // 128 times these are taken off; null: nothing is
  const float* row_scale;           // null: 1
  const float* column_scale;        // null: 1
};

// What a plan's tiles are stored into.
struct StoreJob {
  StoreJob(const Gemm& g, EpilogueFunction function)
      : alpha(g.alpha),
        beta(g.beta),
        has_epilogue(g.has_epilogue()),
        epilogue(g),
        apply(function) {}
  // `gate`: the sums of the first product of gate=1.
  void bind(const Operands& operands, Matrix<const float> gate);

  float alpha, beta;
  bool has_epilogue;
  EpilogueJob epilogue;
  EpilogueFunction apply;
  View c, c0, residual;  // c0 without data: beta is 0
};

// Floats (and words of sums) that may be read behind the last of a tile.
inline constexpr std::int64_t store_slack = 64;

using StoreFunction = void (*)(const StoreJob&, const SumTile&);
StoreFunction store_function(std::int64_t target);

// Rows of `count` numbers, `outer` elements apart, in another format and side by side. `inner`
// elements lie from one number of a row to the next; inner or outer is 1.
struct ConvertCall {
  DType type;  // float32, float16 or bfloat16
  const std::byte* from;
  std::int64_t outer, inner;
  std::int64_t rows, count;
  DType to_type;  // float32; bfloat16; int8: round(x · 127 / max|x|); uint8: the same + 128
  void* to;
  float* steps;  // of integers, a row's: max|x| / 127; NaN: the row is not finite
};
using ConvertFunction = void (*)(const ConvertCall&);
ConvertFunction convert_function(std::int64_t target);

}  // namespace rooflane::gemm
