// A number format as float32, for the ISA target being compiled: vectors along k become
// micro-panels, few rows are multiplied as they are read. What a format is: hwy_formats-inl.h.
#if defined(ROOFLANE_GEMM_HWY_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_DECODE_INL_H_
#undef ROOFLANE_GEMM_HWY_DECODE_INL_H_
#else
#define ROOFLANE_GEMM_HWY_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/gemm/hwy_few-inl.h"
#include "kernels/gemm/hwy_transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// `count` elements as floats, from the start of a block.
template <class Format>
void DecodeElements(const std::uint8_t* from, int64_t count, float* to) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto decode = [&](const std::uint8_t* block, const float* heads, float* values) HWY_ATTR {
    const auto start = Format::Begin(heads);
    for (int64_t place = 0; place < kBlock; place += lanes) {
      hn::StoreU(Format::At(start, block, place), d, values + place);
    }
  };
  float heads[kHeads];
  for (int64_t left = count / kBlock, t = 0; t < left; ++t, from += Format::bytes) {
    const int64_t of_heads = t % kBlocksTogether<Format>;
    if (of_heads == 0) ReadHeads<Format>(from, std::min(left - t, kBlocksTogether<Format>), heads);
    decode(from, heads + of_heads * Format::heads, to + t * kBlock);
  }
  const int64_t rest = count % kBlock;
  if (rest == 0) return;
  // Fewer than a block of elements of a format without blocks.
  std::uint8_t padded[Format::bytes] = {};
  std::copy_n(from, rest * Format::bytes / kBlock, padded);
  float values[kBlock];
  decode(padded, heads, values);
  std::copy_n(values, rest, to + count - rest);
}

// The same of a format without blocks, by whole vectors if `readable` elements, which belong to the
// operand, are as many: the last vector may be written beyond `count`.
template <class Format>
HWY_INLINE void DecodeRun(const std::uint8_t* from, int64_t count, int64_t readable, float* to) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (Format::heads > 0 || readable < (count + lanes - 1) / lanes * lanes) {
    return DecodeElements<Format>(from, count, to);
  }
  for (int64_t i = 0; i < count; i += lanes) {
    hn::StoreU(Format::At(Format::Begin(nullptr), from, i), d, to + i);
  }
}

// Vectors that lie along memory are decoded so many elements at a time, which stay in L1, and
// transposed from there.
constexpr int64_t kDecoded = 128;

template <class Format>
void PackDecoded(const PackCall& c) {
  if constexpr (std::is_same_v<Format, Floats>) {
    if (c.inner == 1 && c.count == c.width) {
      PackTransposed(reinterpret_cast<const float*>(c.from), c.outer, c.width, c.k,
                     reinterpret_cast<float*>(c.to), c.width);
      return;
    }
  }
  const auto* const from = reinterpret_cast<const std::uint8_t*>(c.from);
  auto* const to = reinterpret_cast<float*>(c.to);
  // In formats with blocks these are whole blocks.
  const auto bytes = [](int64_t elements) { return elements * Format::bytes / kBlock; };
  // Vectors of the micro-panel beyond those of its columns are not read.
  constexpr auto lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  const int64_t whole = (c.count + lanes - 1) / lanes * lanes, used = std::min(c.width, whole);
  if (c.inner != 1) {
    // The hardware does not follow so many rows: what later micro-panels take of them.
    const int64_t of_row = bytes(c.width), ahead = std::max<int64_t>(256, of_row);
    for (int64_t p = 0; p < c.k; ++p) {
      const std::uint8_t* const row = from + bytes(p * c.inner);
      const int64_t behind = (c.k - 1 - p) * c.inner + c.count;  // elements from here on
      for (int64_t at = ahead; at < std::min(ahead + of_row, bytes(behind)); at += 64) {
        __builtin_prefetch(row + at);
      }
      float* const to_row = to + p * c.width;
      // The last vector must not be written behind the micro-panel.
      const bool fits = p * c.width + whole <= c.k * c.width;
      DecodeRun<Format>(row, c.count, fits ? behind : c.count, to_row);
      if (c.count < used) std::fill(to_row + c.count, to_row + used, 0.0f);
    }
    return;
  }
  HWY_ALIGN float rows[std::max<int64_t>(8, 3 * hn::MaxLanes(D())) * kDecoded];
  if (c.count < used) std::fill_n(rows, used * kDecoded, 0.0f);
  for (int64_t p = 0; p < c.k; p += kDecoded) {
    const int64_t here = std::min(kDecoded, c.k - p);
    for (int64_t v = 0; v < c.count; ++v) {
      // The hardware does not follow pieces of rows.
      constexpr int64_t ahead = 8;
      if (v + ahead < c.count) {
        const std::uint8_t* const later = from + bytes((v + ahead) * c.outer + p);
        for (int64_t at = 0; at < bytes(here); at += 64) __builtin_prefetch(later + at);
      }
      DecodeRun<Format>(from + bytes(v * c.outer + p), here, (c.count - 1 - v) * c.outer + c.k - p,
                        rows + v * kDecoded);
    }
    PackTransposed(rows, kDecoded, used, here, to + p * c.width, c.width);
  }
}

// Few rows of a, `decoded_row` apart. Formats with blocks lie along k.
template <class Format>
void DecodeRows(const PackCall& c) {
  const auto* const from = reinterpret_cast<const std::uint8_t*>(c.from);
  auto* const to = reinterpret_cast<float*>(c.to);
  const auto bytes = [](int64_t elements) { return elements * Format::bytes / kBlock; };
  const int64_t ld = decoded_row(c.k);
  if (c.inner == 1) {
    for (int64_t i = 0; i < c.count; ++i) {
      DecodeRun<Format>(from + bytes(i * c.outer), c.k, (c.count - 1 - i) * c.outer + c.k,
                        to + i * ld);
    }
  } else if constexpr (std::is_same_v<Format, Floats>) {
    PackTransposed(reinterpret_cast<const float*>(from), c.inner, c.k, c.count, to, ld);
  } else {
    constexpr int64_t together = 32;
    float columns[together * most_few_rows + hn::MaxLanes(D())];
    for (int64_t p = 0; p < c.k; p += together) {
      const int64_t steps = std::min(together, c.k - p);
      for (int64_t s = 0; s < steps; ++s) {
        DecodeRun<Format>(from + bytes((p + s) * c.inner), c.count,
                          (c.k - 1 - p - s) * c.inner + c.count, columns + s * c.count);
      }
      PackTransposed(columns, c.count, steps, c.count, to + p, ld);
    }
  }
  for (int64_t i = 0; i < c.count; ++i) std::fill_n(to + i * ld + c.k, ld - c.k, 0.0f);
}
// What the driver takes of a format.
template <class Format>
FormatFunctions FunctionsOf() {
  return {PackDecoded<Format>, DecodeRows<Format>, MultiplyFew<Format>};
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // include guard
