// Highway's units at every ISA target: operands of any format are decoded to float32 as they become
// micro-panels (hwy_decode-inl.h), which float32's own micro-kernels multiply (hwy_loops.cpp);
// 8-bit integers are widened to int16, and pmaddwd adds their products in pairs to int32, exactly
// and without saturation. See hwy_units.hpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_units.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/gemm/hwy_part-inl.h"
#include "kernels/gemm/unit.hpp"
#undef ROOFLANE_LOWER_PART

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {
using std::int64_t;

// hwy_loops.cpp has it, in a unit of its own.
void MultiplyPanels(const MicroCall& call);

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

// Micro-tiles of float32's size, for the same reasons.
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
  for (int64_t left = call.steps; left > 0; --left, a += rows, b += kNv * lanes) {
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
      auto* const to = reinterpret_cast<std::int32_t*>(call.to + i * call.to_ld) + j * lanes;
      hn::StoreU(sums[i][j], d, to);
    }
  }
}

void MultiplyPairs(const MicroCall& call) {
  with_constant<kMr>(call.rows, [&](auto rows) HWY_ATTR {
    call.cols <= static_cast<int64_t>(hn::Lanes(DI())) ? PairTile<rows, 1>(call)
                                                       : PairTile<rows, kNv>(call);
  });
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

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cctype>
#include <memory>

#include "backends/highway.hpp"
#include "kernels/gemm/hwy_floats.hpp"
#include "kernels/gemm/hwy_formats.hpp"
#include "kernels/gemm/hwy_units.hpp"

namespace rooflane::gemm {

HWY_EXPORT(MultiplyPanels);
HWY_EXPORT(MultiplyPairs);
HWY_EXPORT(PackPairs);

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

Unit plain_fma_unit(DType a_type, DType b_type, std::int64_t target) {
  const MicroTile tile = micro_tile_at(target);
  const FormatFunctions a = format_functions(a_type, target), b = format_functions(b_type, target);
  Unit unit{};
  unit.kind = UnitKind::fma;
  unit.path = fma_path(target);
  unit.isa = isa_name(target);
  unit.mr = tile.mr, unit.nr = tile.nr();
  unit.depth = unit.words = 1;
  unit.k_together = 32;  // whole blocks of any format
  unit.a_in_place = a_type == &float32, unit.b_in_place = b_type == &float32;
  unit.into_c = IntoC::any;
  unit.micro = ROOFLANE_HWY_FUNCTION(MultiplyPanels, target);
  unit.pack_a = a.pack, unit.pack_b = b.pack;
  unit.few.path = unit.path;
  unit.few.limit = most_few_rows;
  unit.few.rows_a_visit = most_decoded_rows;
  unit.few.together = 1;
  unit.few.words = [](int64_t rows, int64_t k) { return rows * decoded_row(k); };
  unit.few.pack = a.rows;
  unit.few.multiply = b.multiply_few;
  return unit;
}

}  // namespace

Unit fma_unit(DType a_type, DType b_type, std::int64_t target) {
  Unit unit = plain_fma_unit(a_type, b_type, target);
  unit.swapped = std::make_shared<const Unit>(plain_fma_unit(b_type, a_type, target));
  return unit;
}

Unit pair_unit(std::int64_t target) {
  const MicroTile tile = micro_tile_at(target);
  Unit unit{};
  unit.kind = UnitKind::pmaddwd;
  unit.path = pair_path(target);
  unit.isa = isa_name(target);
  unit.mr = tile.mr, unit.nr = tile.nr();
  unit.depth = 2, unit.words = 1;
  unit.k_together = unit.depth;
  unit.integers = true;
  unit.into_c = IntoC::whole;
  unit.a_quantised = &int8;
  unit.micro = ROOFLANE_HWY_FUNCTION(MultiplyPairs, target);
  unit.pack_a = unit.pack_b = ROOFLANE_HWY_FUNCTION(PackPairs, target);
  return unit;
}

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
