// Highway's units at every ISA target: operands of any format are decoded to float32 as they become
// micro-panels, which float32's own micro-kernels multiply (hwy_loops.cpp); 8-bit integers are
// widened to int16, whose products pmaddwd adds in pairs to int32, exactly and without saturation.
// See hwy_units.hpp; decoding: hwy_formats-inl.h; few rows: hwy_converted.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_units.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"
#include "kernels/gemm/hwy_converted_job.hpp"
#include "kernels/gemm/hwy_formats-inl.h"
#include "kernels/gemm/hwy_transpose-inl.h"
#include "kernels/gemm/unit.hpp"
#undef ROOFLANE_LOWER_PART

#ifndef ROOFLANE_GEMM_TILE_SIZE  // once for all ISA targets
#define ROOFLANE_GEMM_TILE_SIZE
namespace rooflane::gemm {
struct TileSize {
  std::int64_t mr, nr;
};
}  // namespace rooflane::gemm
#endif

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// hwy_loops.cpp has it, in a unit of its own.
void MultiplyPanels(const MicroCall& call);

// ---- float32

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

// Vectors that lie along memory are decoded so many elements at a time, which stay in L1, and
// transposed from there.
constexpr int64_t kDecoded = 128;

template <class Format>
void PackDecoded(const PackCall& c) {
  const auto* const from = reinterpret_cast<const std::uint8_t*>(c.from);
  auto* const to = reinterpret_cast<float*>(c.to);
  // Of formats with blocks these are whole ones.
  const auto bytes = [](int64_t elements) { return elements * Format::bytes / kBlock; };
  if (c.inner != 1) {
    for (int64_t p = 0; p < c.k; ++p) {
      DecodeElements<Format>(from + bytes(p * c.inner), c.count, to + p * c.width);
      std::fill(to + p * c.width + c.count, to + (p + 1) * c.width, 0.0f);
    }
    return;
  }
  HWY_ALIGN float rows[std::max<int64_t>(8, 3 * hn::MaxLanes(D())) * kDecoded];
  if (c.count < c.width) std::fill_n(rows, c.width * kDecoded, 0.0f);
  for (int64_t p = 0; p < c.k; p += kDecoded) {
    const int64_t here = std::min(kDecoded, c.k - p);
    for (int64_t v = 0; v < c.count; ++v) {
      DecodeElements<Format>(from + bytes(v * c.outer + p), here, rows + v * kDecoded);
    }
    PackTransposed(rows, kDecoded, c.width, here, to + p * c.width, c.width);
  }
}

// float32 vectors along memory need no decoding.
void PackFloats(const PackCall& c) {
  if (c.type == &float32 && c.inner == 1 && c.count == c.width) {
    PackTransposed(reinterpret_cast<const float*>(c.from), c.outer, c.width, c.k,
                   reinterpret_cast<float*>(c.to), c.width);
    return;
  }
  WithFormat(c.type, [&](auto format) HWY_ATTR { PackDecoded<decltype(format)>(c); });
}

// Few rows of a, `decoded_row` apart.
template <class Format>
void DecodeRows(const PackCall& c) {
  const auto* const from = reinterpret_cast<const std::uint8_t*>(c.from);
  auto* const to = reinterpret_cast<float*>(c.to);
  constexpr int64_t size = Format::bytes / kBlock;  // formats of a have no blocks
  const int64_t ld = decoded_row(c.k);
  std::fill_n(to, c.count * ld, 0.0f);
  if (c.inner == 1) {
    for (int64_t i = 0; i < c.count; ++i) {
      DecodeElements<Format>(from + i * c.outer * size, c.k, to + i * ld);
    }
    return;
  }
  float column[most_converted_rows];
  for (int64_t p = 0; p < c.k; ++p) {
    DecodeElements<Format>(from + p * c.inner * size, c.count, column);
    for (int64_t i = 0; i < c.count; ++i) to[i * ld + p] = column[i];
  }
}
void DecodeFew(const PackCall& c) {
  if (c.type == &float16) return DecodeRows<ShortFloats<Float16>>(c);
  if (c.type == &bfloat16) return DecodeRows<ShortFloats<BFloat16>>(c);
  DecodeRows<Floats>(c);
}

// ---- pairs of int16

using DI = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<DI>;

// sum + the products of two int16 in each lane.
HWY_INLINE VI AddPairs(VI a, VI b, VI sum) {
  [[maybe_unused]] const DI d;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::Repartition<std::int16_t, DI> d16;
  VI unused = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, a), hn::BitCast(d16, b), sum, unused);
#else
  const auto low = [](VI x) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(x)); };
  const auto high = [](VI x) HWY_ATTR { return hn::ShiftRight<16>(x); };
  return hn::Add(sum, hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b))));
#endif
}

// As many accumulators as float32's micro-tiles have (hwy_micro-inl.h), and for the same reasons.
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kPairRows = 8, kPairVectors = 3;
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
constexpr int kPairRows = 6, kPairVectors = 2;
#else
constexpr int kPairRows = 4, kPairVectors = 2;
#endif

template <int rows, int vectors>
void PairTile(const MicroCall& call) {
  const DI d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VI sums[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) {
      const auto* const from =
          reinterpret_cast<const std::int32_t*>(call.sums + i * call.ld) + j * lanes;
      sums[i][j] = call.add ? VI(hn::LoadU(d, from)) : VI(hn::Zero(d));
    }
  }
  const auto* a = reinterpret_cast<const std::int32_t*>(call.a);
  const auto* b = reinterpret_cast<const std::int32_t*>(call.b);
  for (int64_t left = call.steps; left > 0; --left, a += rows, b += kPairVectors * lanes) {
    VI columns[vectors];
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) columns[j] = hn::LoadU(d, b + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const VI row = hn::Set(d, a[i]);
#pragma GCC unroll 8
      for (int j = 0; j < vectors; ++j) sums[i][j] = AddPairs(row, columns[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) {
      auto* const to = reinterpret_cast<std::int32_t*>(call.sums + i * call.ld) + j * lanes;
      hn::StoreU(sums[i][j], d, to);
    }
  }
}

template <int vectors, int... row>
constexpr auto PairTiles(std::integer_sequence<int, row...>) {
  return std::array<void (*)(const MicroCall&), sizeof...(row)>{PairTile<row + 1, vectors>...};
}
void MultiplyPairs(const MicroCall& call) {
  using Rows = std::make_integer_sequence<int, kPairRows>;
  static constexpr auto one = PairTiles<1>(Rows()), all = PairTiles<kPairVectors>(Rows());
  const bool narrow = call.cols <= static_cast<int64_t>(hn::Lanes(DI()));
  (narrow ? one : all)[static_cast<std::size_t>(call.rows - 1)](call);
}

template <class Byte>
void WidenPairs(const PackCall& c) {
  const auto* const from = reinterpret_cast<const Byte*>(c.from);
  const auto word = [&](int64_t p, int64_t v) {
    const auto at = [&](int64_t q) {
      return q < c.k ? static_cast<std::uint32_t>(
                           static_cast<std::uint16_t>(int{from[v * c.outer + q * c.inner]}))
                     : 0u;
    };
    return at(p) | at(p + 1) << 16;
  };
  // Eight steps at a time, so that what is read and written stays in L1 whichever way it lies.
  constexpr int64_t together = 8;
  for (int64_t first = 0; first < c.steps; first += together) {
    const int64_t last = std::min(c.steps, first + together);
    for (int64_t v = 0; v < c.count; ++v) {
      for (int64_t s = first; s < last; ++s) c.to[s * c.width + v] = word(2 * s, v);
    }
    for (int64_t s = first; s < last; ++s) {
      std::fill(c.to + s * c.width + c.count, c.to + (s + 1) * c.width, 0u);
    }
  }
}
void PackPairs(const PackCall& c) {
  if (c.type == &uint8) {
    WidenPairs<std::uint8_t>(c);
  } else {
    WidenPairs<std::int8_t>(c);
  }
}

TileSize PairSize() { return {kPairRows, kPairVectors * static_cast<int64_t>(hn::Lanes(DI()))}; }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cctype>

#include "backends/highway.hpp"
#include "kernels/gemm/hwy_units.hpp"

namespace rooflane::gemm {

HWY_EXPORT(MultiplyPanels);
HWY_EXPORT(PackFloats);
HWY_EXPORT(DecodeFew);
HWY_EXPORT(MultiplyPairs);
HWY_EXPORT(PackPairs);
HWY_EXPORT(PairSize);

std::string fma_path(std::int64_t target) {
  std::string isa = isa_name(target);
  if (isa == "SCALAR" || isa == "EMU128") return "scalar";
  if (isa.starts_with("AVX3")) return "avx512-fma";
  if (isa == "AVX2") return "avx2-fma";
  if (isa.starts_with("NEON")) return "neon-fma";
  // SSE4, SSSE3 and SSE2 have no fused multiply-add to name.
  std::transform(isa.begin(), isa.end(), isa.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return isa;
}

namespace {

std::string pair_path(std::int64_t target) {
  const std::string path = fma_path(target);
  if (path == "avx512-fma") return "avx512-pmaddwd";
  if (path == "avx2-fma") return "avx2-pmaddwd";
  return path.starts_with("ss") ? path + "-pmaddwd" : path;
}

}  // namespace

Unit fma_unit(std::int64_t target) {
  const auto size = ROOFLANE_HWY_FUNCTION(PairSize, target)();  // as float32's
  Unit unit{};
  unit.path = fma_path(target);
  unit.isa = isa_name(target);
  unit.mr = size.mr, unit.nr = size.nr;
  unit.depth = unit.words = 1;
  unit.k_together = 32;  // whole blocks of any format
  unit.stores_to_c = true;
  unit.micro = ROOFLANE_HWY_FUNCTION(MultiplyPanels, target);
  unit.pack_a = unit.pack_b = ROOFLANE_HWY_FUNCTION(PackFloats, target);
  unit.few.path = unit.path;
  unit.few.limit = most_converted_rows;
  unit.few.together = 1;
  unit.few.words = [](int64_t rows, int64_t k) { return rows * decoded_row(k); };
  unit.few.pack = ROOFLANE_HWY_FUNCTION(DecodeFew, target);
  unit.few.multiply = multiply_few_decoded(target);
  return unit;
}

Unit pair_unit(std::int64_t target) {
  const auto size = ROOFLANE_HWY_FUNCTION(PairSize, target)();
  Unit unit{};
  unit.path = pair_path(target);
  unit.isa = isa_name(target);
  unit.mr = size.mr, unit.nr = size.nr;
  unit.depth = 2, unit.words = 1;
  unit.k_together = unit.depth;
  unit.integers = true;
  unit.a_quantised = &int8;
  unit.micro = ROOFLANE_HWY_FUNCTION(MultiplyPairs, target);
  unit.pack_a = unit.pack_b = ROOFLANE_HWY_FUNCTION(PackPairs, target);
  return unit;
}

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
