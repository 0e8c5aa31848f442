// Few rows of a against b [n,k] in a format that is decoded to float32, at every ISA target: each
// row of b is read once, decoded in registers and multiplied by all rows of a.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_converted.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include <algorithm>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/gemm/hwy_converted_job.hpp"
#include "kernels/gemm/hwy_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

// Fewer than a block of elements of a format without blocks, padded with zeros.
template <class Format>
struct Padded {
  std::uint8_t bytes[Format::bytes] = {};
  Padded(const std::uint8_t* from, std::int64_t elements) {
    std::memcpy(bytes, from, static_cast<std::size_t>(elements * Format::bytes / kBlock));
  }
};

// Sums of `together` rows of b with `rows` rows of a. `parts` of each sum are independent, so that
// multiply-adds need not wait for one another.
template <class Format, int rows, int together, int parts>
HWY_INLINE void AddBlock(const std::uint8_t* const* b, const float* a, std::int64_t lda,
                         V (&sums)[together][rows][parts]) {
  const D d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
#pragma GCC unroll 4
  for (int r = 0; r < together; ++r) {
    const auto start = Format::Begin(b[r]);
#pragma GCC unroll 32
    for (std::int64_t place = 0; place < kBlock; place += lanes) {
      const V weights = Format::At(start, b[r], place);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        V& sum = sums[r][i][place / lanes % parts];
        sum = hn::MulAdd(weights, hn::LoadU(d, a + i * lda + place), sum);
      }
    }
  }
}

// Bytes before they are read: some 16 lines in flight hide memory's latency.
constexpr std::int64_t prefetch_bytes = 1024;

// Columns col, col + apart…
template <class Format, int rows, int together>
void SkinnyColumns(const SkinnyConvertedCall& c, std::int64_t col, std::int64_t apart) {
  constexpr int parts = rows * together <= 4 ? 2 : 1;
  const D d;
  V sums[together][rows][parts];
#pragma GCC unroll 4
  for (int r = 0; r < together; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
      for (int part = 0; part < parts; ++part) sums[r][i][part] = hn::Zero(d);
    }
  }
  const std::uint8_t* b[together];
  for (int r = 0; r < together; ++r) b[r] = c.b + (col + r * apart) * c.row_bytes;
  std::int64_t p = 0;
  for (; p + kBlock <= c.k; p += kBlock) {
    AddBlock<Format, rows, together, parts>(b, c.a + p, c.lda, sums);
#pragma GCC unroll 4
    for (int r = 0; r < together; ++r) {
      hwy::Prefetch(b[r] + prefetch_bytes);
      b[r] += Format::bytes;
    }
  }
  if (p < c.k) {
    for (int r = 0; r < together; ++r) {
      const Padded<Format> rest(b[r], c.k - p);
      const std::uint8_t* const one[1] = {rest.bytes};
      V of_one[1][rows][parts];
      for (int i = 0; i < rows; ++i) {
        for (int part = 0; part < parts; ++part) of_one[0][i][part] = sums[r][i][part];
      }
      AddBlock<Format, rows, 1, parts>(one, c.a + p, c.lda, of_one);
      for (int i = 0; i < rows; ++i) {
        for (int part = 0; part < parts; ++part) sums[r][i][part] = of_one[0][i][part];
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < together; ++r) {
    const float scale = c.scale != nullptr ? c.scale[col + r * apart] : 1;
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      V sum = sums[r][i][0];
      if (parts == 2) sum = hn::Add(sum, sums[r][i][parts - 1]);
      c.sums[i * c.ld + col + r * apart] = scale * hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

// So many rows of b at a time that their sums, and those of AVX2's 16 registers too, stay in
// registers; far apart, so that each is one of few long streams.
template <class Format, int rows>
void SkinnyRows(const SkinnyConvertedCall& c) {
  constexpr int together = rows == 1 ? 4 : rows <= 4 ? 2 : 1;
  const std::int64_t apart = c.cols / together;
  for (std::int64_t col = 0; col < apart; ++col) {
    SkinnyColumns<Format, rows, together>(c, col, apart);
  }
  for (std::int64_t col = apart * together; col < c.cols; ++col) {
    SkinnyColumns<Format, rows, 1>(c, col, 1);
  }
}

void MultiplySkinny(const SkinnyConvertedCall& c) {
  WithFormat(c.type, [&](auto format) HWY_ATTR {
    using Format = decltype(format);
    switch (c.rows) {
      case 1:
        return SkinnyRows<Format, 1>(c);
      case 2:
        return SkinnyRows<Format, 2>(c);
      case 3:
        return SkinnyRows<Format, 3>(c);
      case 4:
        return SkinnyRows<Format, 4>(c);
      default:
        return SkinnyRows<Format, most_converted_rows>(c);
    }
  });
}

void MultiplyFew(const FewRowsCall& call) {
  MultiplySkinny({.type = call.type,
                  .a = reinterpret_cast<const float*>(call.a),
                  .lda = decoded_row(call.k),
                  .rows = decoded_rows(call.rows),
                  .b = reinterpret_cast<const std::uint8_t*>(call.b),
                  .row_bytes = call.row_bytes,
                  .scale = nullptr,
                  .k = call.k,
                  .cols = call.cols,
                  .sums = reinterpret_cast<float*>(call.sums),
                  .ld = call.ld});
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "backends/highway.hpp"

namespace rooflane::gemm {

HWY_EXPORT(MultiplyFew);

MultiplyFewFunction multiply_few_decoded(std::int64_t target) {
  return ROOFLANE_HWY_FUNCTION(MultiplyFew, target);
}

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
