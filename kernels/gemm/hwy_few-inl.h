// Few rows of a, as float32, against rows of b in a format that is decoded to float32, for the ISA
// target being compiled: each row of b is read once, decoded in registers and multiplied by all
// rows of a. Next: hwy_decode-inl.h.
#if defined(ROOFLANE_GEMM_HWY_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_FEW_INL_H_
#undef ROOFLANE_GEMM_HWY_FEW_INL_H_
#else
#define ROOFLANE_GEMM_HWY_FEW_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <iterator>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/register-inl.h"
#include "kernels/gemm/hwy_formats-inl.h"
#include "kernels/gemm/hwy_formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

// Sums of `together` rows of b with `rows` rows of a. A sum takes k's vectors in order, and does
// not depend on how many rows there are.
template <class Format, int rows, int together>
HWY_INLINE void AddBlock(const std::uint8_t* const (&b)[together],
                         const float (&heads)[together][kHeads], std::int64_t of_heads,
                         const float* a, std::int64_t lda, V (&sums)[together][rows]) {
  const D d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  typename Format::Start starts[together];
#pragma GCC unroll 8
  for (int r = 0; r < together; ++r) starts[r] = Format::Begin(heads[r] + of_heads);
#if HWY_TARGET != HWY_SCALAR  // one element a vector there: 32 steps, too much code
#pragma GCC unroll 32
#endif
  for (std::int64_t place = 0; place < kBlock; place += lanes) {
    V weights[together];
#pragma GCC unroll 8
    for (int r = 0; r < together; ++r) weights[r] = Format::At(starts[r], b[r], place);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const V of_a = common::HWY_NAMESPACE::InRegister<together>(hn::LoadU(d, a + i * lda + place));
#pragma GCC unroll 8
      for (int r = 0; r < together; ++r) {
        sums[r][i] = hn::MulAdd(weights[r], of_a, sums[r][i]);
      }
    }
  }
}

// Elements [first, last) of k. Between parts the sums of a block of columns are kept as vectors.
struct PartOfK {
  std::int64_t first, last;
  float* kept;  // [column][row][lane]
};

// b before it is read, a line for each that is. In streams: what lies some 16 lines ahead in each
// of them, which hides memory's latency. Else what comes next in the order of memory, into L2: a
// part of k does not lie behind the one before.
template <bool in_streams>
struct Prefetches {
  const std::uint8_t* at;
  const std::uint8_t* end;
  std::int64_t due = 0;  // bytes
  template <int together>
  HWY_INLINE void Next(const std::uint8_t* const (&b)[together], std::int64_t bytes) {
    constexpr std::int64_t line = 64;
    due += in_streams ? bytes : bytes * together;
    for (; due > 0; due -= line) {
      if constexpr (in_streams) {
#pragma GCC unroll 8
        for (int r = 0; r < together; ++r) hwy::Prefetch(b[r] + 16 * line);
      } else {
        constexpr int read = 0, l2 = 2;
        if (at < end) __builtin_prefetch(at, read, l2);
        at += line;
      }
    }
  }
};

// Columns col, col + apart…
template <class Format, int rows, int together, bool in_streams>
void SkinnyColumns(const FewRowsCall& c, const PartOfK& part, std::int64_t col, std::int64_t apart,
                   Prefetches<in_streams>& prefetches) {
  const D d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  const auto* const a = reinterpret_cast<const float*>(c.a);
  const std::int64_t lda = decoded_row(c.k);
  const auto kept = [&](int r, int i) {
    return part.kept + ((col + r * apart) * rows + i) * lanes;
  };
  V sums[together][rows];
#pragma GCC unroll 8
  for (int r = 0; r < together; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      sums[r][i] = part.first > 0 ? V(hn::Load(d, kept(r, i))) : V(hn::Zero(d));
    }
  }
  const std::uint8_t* b[together];
#pragma GCC unroll 8
  for (int r = 0; r < together; ++r) {
    b[r] = reinterpret_cast<const std::uint8_t*>(c.b) + (col + r * apart) * c.row_bytes +
           part.first / kBlock * Format::bytes;
  }
  float heads[together][kHeads];
  std::int64_t p = part.first;
  while (p + kBlock <= part.last) {
    const std::int64_t blocks = std::min((part.last - p) / kBlock, kBlocksTogether<Format>);
#pragma GCC unroll 8
    for (int r = 0; r < together; ++r) ReadHeads<Format>(b[r], blocks, heads[r]);
    for (std::int64_t t = 0; t < blocks; ++t, p += kBlock) {
      prefetches.Next(b, Format::bytes);
      AddBlock<Format, rows, together>(b, heads, t * Format::heads, a + p, lda, sums);
#pragma GCC unroll 8
      for (int r = 0; r < together; ++r) b[r] += Format::bytes;
    }
  }
  if (p < part.last) {
    std::uint8_t rest[together][Format::bytes] = {};
#pragma GCC unroll 8
    for (int r = 0; r < together; ++r) {
      std::memcpy(rest[r], b[r],
                  static_cast<std::size_t>((part.last - p) * Format::bytes / kBlock));
      b[r] = rest[r];
    }
    AddBlock<Format, rows, together>(b, heads, 0, a + p, lda, sums);
  }
  if (part.last < c.k) {
#pragma GCC unroll 8
    for (int r = 0; r < together; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) hn::Store(sums[r][i], d, kept(r, i));
    }
    return;
  }
  // Across lanes in fours, also where the last four are fewer: a sum then does not depend on how
  // many others there are.
  constexpr int count = together * rows, last = count - 1;
#pragma GCC unroll 8
  for (int first = 0; first < count; first += 4) {
    const int s1 = std::min(first + 1, last), s2 = std::min(first + 2, last),
              s3 = std::min(first + 3, last);
    float four[4];
    common::HWY_NAMESPACE::ReduceFour(
        d, sums[first / rows][first % rows], sums[s1 / rows][s1 % rows], sums[s2 / rows][s2 % rows],
        sums[s3 / rows][s3 % rows], common::HWY_NAMESPACE::Plus(), four);
    for (int s = first; s < std::min(first + 4, count); ++s) {
      reinterpret_cast<float*>(c.sums)[s % rows * c.ld + col + s / rows * apart] = four[s - first];
    }
  }
}

// Columns [first, …) of a block; the last ones fewer at a time.
template <class Format, int rows, int together, bool in_streams>
void SkinnyBlock(const FewRowsCall& c, const PartOfK& part, std::int64_t first,
                 Prefetches<in_streams>& prefetches) {
  const std::int64_t apart = (c.cols - first) / together;
  for (std::int64_t col = first; col < first + apart; ++col) {
    SkinnyColumns<Format, rows, together>(c, part, col, apart, prefetches);
  }
  if constexpr (together > 1) {
    constexpr int fewer = together > 4 ? 4 : 1;
    SkinnyBlock<Format, rows, fewer>(c, part, first + apart * together, prefetches);
  }
}

// So many rows of b at a time that their sums stay in registers, 32 or 16 of them, and that
// multiply-adds need not wait for one another. They are neighbours, some kilobytes of b, while what
// follows them is on its way; only where a product takes less time than its bytes (a row or two of
// a and short floats) they are few long streams. Where a's rows fill more than two thirds of an L1
// of 48 KB, k is in parts of which they fill half: more columns then, whose b and kept sums lie in
// L2, as all of them read a's part again. Blocks take so long to decode that
// a comes from L2 meanwhile.
template <class Format, int rows>
void SkinnyRows(const FewRowsCall& c) {
  constexpr bool in_streams = rows <= 2 && Format::bytes >= 2 * kBlock;
#if HWY_TARGET <= HWY_AVX3
  constexpr int together = rows == 1 ? (in_streams ? 6 : 8) : rows <= 4 ? 4 : 3;
#else
  constexpr int together = rows == 1 ? 4 : rows <= 4 ? 2 : 1;
#endif
  constexpr std::int64_t most_of_a = 32 << 10, of_a = 24 << 10;
  constexpr std::int64_t of_b = 8 << 10, of_b_in_parts = 128 << 10;
  constexpr std::int64_t of_part = of_a / sizeof(float) / rows / kBlock * kBlock;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN float kept[of_a / sizeof(float)];
  constexpr std::int64_t most_kept = std::size(kept) / (rows * lanes);
  const bool in_parts =
      Format::heads == 0 && c.k * rows * static_cast<std::int64_t>(sizeof(float)) > most_of_a;
  const std::int64_t row_bytes = std::max<std::int64_t>(c.row_bytes, 1);
  std::int64_t width = (in_parts ? of_b_in_parts : of_b) / row_bytes;
  if (in_streams) width = c.cols;
  if (in_parts) width = std::min(width, most_kept);
  width = std::max<std::int64_t>(width / together, 1) * together;
  for (std::int64_t first = 0; first < c.cols; first += width) {
    FewRowsCall block = c;
    block.b += first * c.row_bytes;
    block.sums += first;
    block.cols = std::min(width, c.cols - first);
    Prefetches<in_streams> prefetches{
        reinterpret_cast<const std::uint8_t*>(block.b) + block.cols * c.row_bytes,
        reinterpret_cast<const std::uint8_t*>(c.end)};
    const std::int64_t step = in_parts ? of_part : std::max<std::int64_t>(c.k, 1);
    for (std::int64_t p = 0; p < c.k; p += step) {
      const PartOfK part{p, std::min(c.k, p + step), kept};
      SkinnyBlock<Format, rows, together>(block, part, 0, prefetches);
    }
  }
}

// Rows of a that share a visit of b. SSE4 and the emulation compute longer than b takes to read,
// and are compiled for half as many.
inline constexpr std::int64_t kMostRows =
    HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SCALAR ? most_decoded_rows / 2 : most_decoded_rows;

template <class Format>
void MultiplyFew(const FewRowsCall& c) {
  FewRowsCall part = c;
  for (std::int64_t left = c.rows; left > 0; left -= part.rows) {
    part.rows = std::min(left, kMostRows);
    with_constant<kMostRows>(part.rows,
                             [&](auto rows) HWY_ATTR { SkinnyRows<Format, rows>(part); });
    part.a += part.rows * decoded_row(c.k);
    part.sums += part.rows * c.ld;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // include guard
