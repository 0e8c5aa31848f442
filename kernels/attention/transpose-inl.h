// Transposes rows into columns and back: each block of four lanes contains four columns of one row,
// and blocks are transposed in registers. For attention's Q micro-panels (prefill-inl.h); a large
// matrix would need blocks that suit the caches.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_ATTENTION_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_ATTENTION_TRANSPOSE_INL_H_
#undef ROOFLANE_KERNELS_ATTENTION_TRANSPOSE_INL_H_
#else
#define ROOFLANE_KERNELS_ATTENTION_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"

// If the vector length is not a constant, blocks cannot be addressed: then element by element.
#undef ROOFLANE_BLOCKS
#if HWY_TARGET == HWY_SCALAR || (HWY_HAVE_SCALABLE && !ROOFLANE_SIZED_SVE)
#define ROOFLANE_BLOCKS 0
#else
#define ROOFLANE_BLOCKS 1
#endif

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;

#if ROOFLANE_BLOCKS

// Block b holds from[4·b][0..4).
template <class DV>
HWY_INLINE hn::Vec<DV> LoadBlocks(DV d, const float* const* from, std::int64_t at) {
  if constexpr (hn::MaxLanes(DV()) == 4) {
    return hn::LoadU(d, from[0] + at);
  } else {
    const hn::Half<DV> half;
    return hn::Combine(d, LoadBlocks(half, from + hn::MaxLanes(DV()) / 2, at),
                       LoadBlocks(half, from, at));
  }
}

// Transposes the 4×4 matrix that block b of x0, x1, x2, x3 holds, for every b.
template <class DV, class V = hn::Vec<DV>>
HWY_INLINE void TransposeBlocks(DV d, V& x0, V& x1, V& x2, V& x3) {
  const hn::RepartitionToWide<DV> wide;
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, x0, x1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, x2, x3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, x0, x1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, x2, x3));
  x0 = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
  x1 = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
  x2 = hn::BitCast(d, hn::InterleaveLower(wide, high01, high23));
  x3 = hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23));
}
#endif

// to[c·rows + r] = factor·from[r][c] for `rows` rows, a multiple of a vector's lanes; `to` aligned.
HWY_INLINE void TransposeIn(const float* const* from, std::int64_t rows, std::int64_t cols,
                            float factor, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; r += lanes) {
    std::int64_t c = 0;
#if ROOFLANE_BLOCKS
    const auto scale = hn::Set(d, factor);
    for (; c + 4 <= cols; c += 4) {
      auto x0 = LoadBlocks(d, from + r, c), x1 = LoadBlocks(d, from + r + 1, c);
      auto x2 = LoadBlocks(d, from + r + 2, c), x3 = LoadBlocks(d, from + r + 3, c);
      TransposeBlocks(d, x0, x1, x2, x3);
      float* out = to + c * rows + r;
      hn::Store(hn::Mul(scale, x0), d, out);
      hn::Store(hn::Mul(scale, x1), d, out + rows);
      hn::Store(hn::Mul(scale, x2), d, out + 2 * rows);
      hn::Store(hn::Mul(scale, x3), d, out + 3 * rows);
    }
#endif
    for (; c < cols; ++c) {
      for (std::int64_t i = r; i < r + lanes; ++i) to[c * rows + i] = factor * from[i][c];
    }
  }
}

// to[r][c] = factor[r]·from[c·rows + r] for `rows` rows, a multiple of a vector's lanes. Four rows
// at a time, each written from end to end: blocks of 16 rows, as above, leave too many lines half
// written.
HWY_INLINE void TransposeOut(const float* HWY_RESTRICT from, std::int64_t rows, std::int64_t cols,
                             const float* HWY_RESTRICT factor, float* const* to) {
  constexpr std::int64_t step = ROOFLANE_BLOCKS ? 4 : 1;
  for (std::int64_t r = 0; r < rows; r += step) {
    std::int64_t c = 0;
#if ROOFLANE_BLOCKS
    const hn::FixedTag<float, 4> d4;
    const auto scale = hn::LoadU(d4, factor + r);
    for (; c + 4 <= cols; c += 4) {
      const float* in = from + c * rows + r;
      auto x0 = hn::Mul(scale, hn::LoadU(d4, in));
      auto x1 = hn::Mul(scale, hn::LoadU(d4, in + rows));
      auto x2 = hn::Mul(scale, hn::LoadU(d4, in + 2 * rows));
      auto x3 = hn::Mul(scale, hn::LoadU(d4, in + 3 * rows));
      TransposeBlocks(d4, x0, x1, x2, x3);
      hn::StoreU(x0, d4, to[r] + c);
      hn::StoreU(x1, d4, to[r + 1] + c);
      hn::StoreU(x2, d4, to[r + 2] + c);
      hn::StoreU(x3, d4, to[r + 3] + c);
    }
#endif
    for (; c < cols; ++c) {
      for (std::int64_t i = r; i < r + step; ++i) to[i][c] = factor[i] * from[c * rows + i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
