// Transposition for the hwy GEMM, for the ISA target being compiled: packing micro-panels of an
// operand that is contiguous along k, and c where its transpose was formed. Next: hwy_micro-inl.h.
#if defined(ROOFLANE_GEMM_HWY_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_TRANSPOSE_INL_H_
#undef ROOFLANE_GEMM_HWY_TRANSPOSE_INL_H_
#else
#define ROOFLANE_GEMM_HWY_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"
#include "kernels/gemm/hwy_part-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {
namespace hn = vectors::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// A vector: its block b, four floats, comes from row 4b.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const float* from, std::int64_t ld) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const auto rows = static_cast<std::int64_t>(hn::Lanes(half));
    return hn::Combine(d, LoadBlocks(half, from + rows * ld, ld), LoadBlocks(half, from, ld));
  }
}

// PackTransposed of as many rows as d has lanes × 4 columns: whole vectors are stored, and twice as
// few instructions serve an element as with blocks of 4 × 4.
template <class D>
HWY_INLINE void TransposeRows(D d, const float* HWY_RESTRICT from, std::int64_t ldf,
                              float* HWY_RESTRICT to, std::int64_t ldt) {
  const hn::RepartitionToWide<D> pairs;
  const auto r0 = LoadBlocks(d, from, ldf);
  const auto r1 = LoadBlocks(d, from + ldf, ldf);
  const auto r2 = LoadBlocks(d, from + 2 * ldf, ldf);
  const auto r3 = LoadBlocks(d, from + 3 * ldf, ldf);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + ldt);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * ldt);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * ldt);
}

// Prefetch distance along each row of a group, in floats, at its end into the rows that most often
// come next. Four lines of 16 rows are 4 KB, what memory delivers at 15 GB/s in 270 ns: with two,
// as without any, long rows were copied a fifth to a third slower on a Sapphire Rapids.
constexpr std::int64_t kTransposePrefetch = 4 * 16;

// As many whole groups of rows, from row `r` on, as d has lanes; the last four columns may overlap
// those before. Returns the first row left.
template <class D>
HWY_INLINE std::int64_t TransposeGroups(D d, const float* HWY_RESTRICT from, std::int64_t ldf,
                                        std::int64_t r, std::int64_t rows, std::int64_t cols,
                                        float* HWY_RESTRICT to, std::int64_t ldt) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; r + lanes <= rows; r += lanes) {
    const float* group = from + r * ldf;
    for (std::int64_t c = 0; c < cols; c += 4) {
      if (c % 16 == 0) {
        const std::int64_t past = c + kTransposePrefetch - cols;
        const float* const ahead = group + (past < 0 ? cols : lanes * ldf) + past;
        for (std::int64_t row = 0; row < lanes && past < cols; ++row) {
          hwy::Prefetch(ahead + row * ldf);
        }
      }
      const std::int64_t col = std::min(c, cols - 4);
      TransposeRows(d, group + col, ldf, to + col * ldt + r, ldt);
    }
  }
  return r;
}
#endif

// to[c·ldt + r] = from[r·ldf + c] for rows × cols: groups of a vector's, of 8 and of 4 rows, 4
// columns at a time; the last block of either axis overlaps its neighbour and writes the same
// values again. Group by group, as one line of all rows at a time does not stay in L1.
inline void PackTransposed(const float* HWY_RESTRICT from, std::int64_t ldf, std::int64_t rows,
                           std::int64_t cols, float* HWY_RESTRICT to, std::int64_t ldt) {
#if HWY_TARGET != HWY_SCALAR
  if (rows >= 4 && cols >= 4) {
    std::int64_t r = TransposeGroups(DF(), from, ldf, 0, rows, cols, to, ldt);
#if !ROOFLANE_SIZED_SVE  // parts of a vector of 512 bits come out of Highway 1.2 in another order
    r = TransposeGroups(hn::CappedTag<float, 8>(), from, ldf, r, rows, cols, to, ldt);
#endif
    const hn::CappedTag<float, 4> four;
    r = TransposeGroups(four, from, ldf, r, rows, cols, to, ldt);
    if (r < rows) TransposeGroups(four, from, ldf, rows - 4, rows, cols, to, ldt);
    return;
  }
#endif
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) to[c * ldt + r] = from[r * ldf + c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
