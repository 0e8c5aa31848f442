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
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/gemm/hwy_formats-inl.h"
#include "kernels/gemm/hwy_formats.hpp"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

// A row of a alone: a scale multiplies its block's sum, not each element.
template <class Format>
concept HasIntegers = requires(const std::uint8_t* block) {
  Format::Integer(block, 0);
};

// Sums of `together` rows of b with `rows` rows of a. `parts` of each sum are independent, so that
// multiply-adds need not wait for one another.
template <class Format, int rows, int together, int parts>
HWY_INLINE void AddBlock(const std::uint8_t* const (&b)[together],
                         const float (&heads)[together][kHeads], std::int64_t of_heads,
                         const float* a, std::int64_t lda, V (&sums)[together][rows][parts]) {
  const D d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  if constexpr (rows == 1 && HasIntegers<Format>) {
#pragma GCC unroll 4
    for (int r = 0; r < together; ++r) {
      V of_block = hn::Mul(Format::Integer(b[r], 0), hn::LoadU(d, a));
#pragma GCC unroll 32
      for (std::int64_t place = lanes; place < kBlock; place += lanes) {
        of_block = hn::MulAdd(Format::Integer(b[r], place), hn::LoadU(d, a + place), of_block);
      }
      sums[r][0][0] = hn::MulAdd(of_block, hn::Set(d, heads[r][of_heads]), sums[r][0][0]);
    }
    return;
  }
  typename Format::Start starts[together];
#pragma GCC unroll 4
  for (int r = 0; r < together; ++r) starts[r] = Format::Begin(heads[r] + of_heads);
#pragma GCC unroll 32
  for (std::int64_t place = 0; place < kBlock; place += lanes) {
    V weights[together];
#pragma GCC unroll 4
    for (int r = 0; r < together; ++r) weights[r] = Format::At(starts[r], b[r], place);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const V of_a = hn::LoadU(d, a + i * lda + place);
#pragma GCC unroll 4
      for (int r = 0; r < together; ++r) {
        V& sum = sums[r][i][place / lanes % parts];
        sum = hn::MulAdd(weights[r], of_a, sum);
      }
    }
  }
}

// Elements [first, last) of k, whose sums are added to those before.
struct PartOfK {
  std::int64_t first, last;
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
#pragma GCC unroll 4
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
  constexpr int parts = rows * together <= 4 ? 2 : 1;
  const D d;
  const auto* const a = reinterpret_cast<const float*>(c.a);
  const std::int64_t lda = decoded_row(c.k);
  V sums[together][rows][parts];
#pragma GCC unroll 4
  for (int r = 0; r < together; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
      for (int p = 0; p < parts; ++p) sums[r][i][p] = hn::Zero(d);
    }
  }
  const std::uint8_t* b[together];
#pragma GCC unroll 4
  for (int r = 0; r < together; ++r) {
    b[r] = reinterpret_cast<const std::uint8_t*>(c.b) + (col + r * apart) * c.row_bytes +
           part.first / kBlock * Format::bytes;
  }
  float heads[together][kHeads];
  std::int64_t p = part.first;
  while (p + kBlock <= part.last) {
    const std::int64_t blocks = std::min((part.last - p) / kBlock, kBlocksTogether<Format>);
#pragma GCC unroll 4
    for (int r = 0; r < together; ++r) ReadHeads<Format>(b[r], blocks, heads[r]);
    for (std::int64_t t = 0; t < blocks; ++t, p += kBlock) {
      prefetches.Next(b, Format::bytes);
      AddBlock<Format, rows, together, parts>(b, heads, t * Format::heads, a + p, lda, sums);
#pragma GCC unroll 4
      for (int r = 0; r < together; ++r) b[r] += Format::bytes;
    }
  }
  if (p < part.last) {
    std::uint8_t rest[together][Format::bytes] = {};
#pragma GCC unroll 4
    for (int r = 0; r < together; ++r) {
      std::memcpy(rest[r], b[r],
                  static_cast<std::size_t>((part.last - p) * Format::bytes / kBlock));
      b[r] = rest[r];
    }
    AddBlock<Format, rows, together, parts>(b, heads, 0, a + p, lda, sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < together; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      V sum = sums[r][i][0];
      if (parts == 2) sum = hn::Add(sum, sums[r][i][parts - 1]);
      float& to = reinterpret_cast<float*>(c.sums)[i * c.ld + col + r * apart];
      const float total = hn::GetLane(hn::SumOfLanes(d, sum));
      to = part.first > 0 ? to + total : total;
    }
  }
}

// So many rows of b at a time that their sums stay in registers, 32 or 16 of them. They are
// neighbours, some kilobytes of b, while what follows them is on its way; only where a product
// takes less time than its bytes (a row of a and short floats) they are few long streams. k in
// parts of which a's rows fill half of an L1 of 48 KB at most, as all columns read them again.
template <class Format, int rows>
void SkinnyRows(const FewRowsCall& c) {
#if HWY_TARGET <= HWY_AVX3
  constexpr int together = rows <= 4 ? 4 : 3;
#else
  constexpr int together = rows == 1 ? 4 : rows <= 4 ? 2 : 1;
#endif
  constexpr std::int64_t of_a = 24 << 10, of_b = 8 << 10;
  constexpr std::int64_t of_part = of_a / sizeof(float) / rows / kBlock * kBlock;
  constexpr bool in_streams = rows == 1 && Format::bytes >= 2 * kBlock;
  const std::int64_t row_bytes = std::max<std::int64_t>(c.row_bytes, 1);
  const std::int64_t columns = std::max<std::int64_t>(of_b / row_bytes / together, 1) * together;
  const std::int64_t width = in_streams ? c.cols : columns;
  for (std::int64_t first = 0; first < c.cols; first += width) {
    const std::int64_t cols = std::min(width, c.cols - first), apart = cols / together;
    const auto* const b = reinterpret_cast<const std::uint8_t*>(c.b);
    Prefetches<in_streams> prefetches{b + (first + cols) * c.row_bytes,
                                      reinterpret_cast<const std::uint8_t*>(c.end)};
    for (std::int64_t p = 0; p < c.k; p += of_part) {
      const PartOfK part{p, std::min(c.k, p + of_part)};
      for (std::int64_t col = 0; col < apart; ++col) {
        SkinnyColumns<Format, rows, together>(c, part, first + col, apart, prefetches);
      }
      for (std::int64_t col = apart * together; col < cols; ++col) {
        SkinnyColumns<Format, rows, 1>(c, part, first + col, 1, prefetches);
      }
    }
  }
}

template <class Format, int... row>
void SkinnyOf(const FewRowsCall& c, std::integer_sequence<int, row...>) {
  ((c.rows == row + 1 ? SkinnyRows<Format, row + 1>(c) : void()), ...);
}
template <class Format>
void MultiplyFew(const FewRowsCall& c) {
  SkinnyOf<Format>(c, std::make_integer_sequence<int, most_decoded_rows>());
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // include guard
