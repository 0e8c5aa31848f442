// GEMM, variant `avx512`: bfloat16 by vdpbf16ps, 8-bit integers by vpdpbusd, whose first operand is
// unsigned (s8 is packed 128 larger, and 128 times the sums of b's columns are taken off again).
// Micro-tile 12×32: 24 accumulators and two vectors of b in 32 registers, of which 4-5 cycles'
// latency times two a cycle need 10. Everything but the micro-kernel: unit_product.hpp,
// avx512_pack-inl.h. Weights in GGUF's blocks: avx512_blocks.cpp. The variant's name remains for
// one release: it is `hwy` with the unit fixed.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "backends/avx512.hpp"
#include "generated_catalogue.hpp"
#include "hwy/base.h"
#include "kernels/gemm/avx512_units.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/units.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,f16c")
namespace rooflane::gemm {
namespace {

#include "kernels/gemm/avx512_pack-inl.h"

constexpr int mr = 12, vectors = 2, lanes_per_vector = 16, nr = vectors * lanes_per_vector;

// c += a·b in each lane.
struct BFloat16Products {
  using Element = std::uint16_t;
  using Sums = __m512;
  using TileSums = Sums;  // of MicroTile
  static Sums Zero() { return _mm512_setzero_ps(); }
  static Sums Load(const void* from) { return _mm512_loadu_ps(from); }
  static void Store(void* to, Sums sums) { _mm512_storeu_ps(to, sums); }
  static Sums Add(Sums c, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  }
  static std::uint32_t Total(Sums sums) {
    // Halves, quarters and so on.
    sums += _mm512_maskz_shuffle_f32x4(all, sums, sums, 0x4E);
    sums += _mm512_maskz_shuffle_f32x4(all, sums, sums, 0xB1);
    sums += _mm512_maskz_permute_ps(all, sums, 0x4E);
    return std::bit_cast<std::uint32_t>(sums[0] + sums[1]);
  }
  static Sums Plus(Sums x, Sums y) { return _mm512_add_ps(x, y); }
  static std::uint32_t Plus(std::uint32_t x, std::uint32_t y) {
    return std::bit_cast<std::uint32_t>(std::bit_cast<float>(x) + std::bit_cast<float>(y));
  }
  static __m512i LoadPart(std::int64_t elements, const void* from) {
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << elements) - 1), from);
  }
};

struct IntegerProducts {
  using Element = std::uint8_t;
  // GCC 12 copies accumulators of __m512i before and after each product in SkinnyColumns, and
  // spills those of the other type in MicroTile.
  using Sums = std::int32_t __attribute__((vector_size(64)));
  using TileSums = __m512i;
  static Sums Zero() { return Sums{}; }
  static Sums Load(const void* from) { return (Sums)_mm512_loadu_si512(from); }
  static void Store(void* to, Sums sums) { _mm512_storeu_si512(to, (__m512i)sums); }
  static Sums Add(Sums c, __m512i a, __m512i b) {
    return (Sums)_mm512_dpbusd_epi32((__m512i)c, a, b);
  }
  static TileSums Add(TileSums c, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(c, a, b); }
  static std::uint32_t Total(Sums of) {
    auto sums = (__m512i)of;
    sums = _mm512_add_epi32(sums, _mm512_maskz_shuffle_i32x4(all, sums, sums, 0x4E));
    sums = _mm512_add_epi32(sums, _mm512_maskz_shuffle_i32x4(all, sums, sums, 0xB1));
    sums = _mm512_add_epi32(sums, _mm512_maskz_shuffle_epi32(all, sums, _MM_PERM_BADC));
    const auto pair = static_cast<std::uint64_t>(sums[0]);
    return static_cast<std::uint32_t>(pair) + static_cast<std::uint32_t>(pair >> 32);
  }
  static Sums Plus(Sums x, Sums y) { return x + y; }
  static std::uint32_t Plus(std::uint32_t x, std::uint32_t y) { return x + y; }
  static __m512i LoadPart(std::int64_t elements, const void* from) {
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << elements) - 1, from);
  }
};

// Lanes of k whose products take, at 24 a lane, longer than L2 does to answer, many times over.
constexpr std::int64_t prefetch_lanes = 8;

// Loops over accumulators must be unrolled, or they would lie on the stack.
template <class Products, int rows, int count>
void MicroTile(const MicroCall& call) {
  using TileSums = typename Products::TileSums;
  TileSums sums[rows][count];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < count; ++j) {
      sums[i][j] = call.add
                       ? (TileSums)Products::Load(call.sums + i * call.ld + j * lanes_per_vector)
                       : (TileSums)Products::Zero();
    }
  }
  const std::uint32_t* a = call.a;
  const std::uint32_t* b = call.b;
  for (std::int64_t left = call.steps; left > 0; --left, a += rows, b += nr) {
    _mm_prefetch(reinterpret_cast<const char*>(a + prefetch_lanes * rows), _MM_HINT_T0);
    __m512i columns[count];
#pragma GCC unroll 16
    for (int j = 0; j < count; ++j) {
      const std::uint32_t* const column = b + j * lanes_per_vector;
      _mm_prefetch(reinterpret_cast<const char*>(column + prefetch_lanes * nr), _MM_HINT_T0);
      columns[j] = _mm512_loadu_si512(column);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(a[i]));
#pragma GCC unroll 16
      for (int j = 0; j < count; ++j) sums[i][j] = Products::Add(sums[i][j], row, columns[j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < count; ++j) {
      Products::Store(call.sums + i * call.ld + j * lanes_per_vector,
                      (typename Products::Sums)sums[i][j]);
    }
  }
}

// A step is a lane.
template <class E>
void PackSteps(const PackCall& c) {
  PackLanes<E, 1>(c, c.steps);
}

using MicroFunction = void (*)(const MicroCall&);
template <class Products, int count, int... row>
constexpr auto micro_tiles_of(std::integer_sequence<int, row...>) {
  return std::array<MicroFunction, sizeof...(row)>{MicroTile<Products, row + 1, count>...};
}

template <class Products>
void Micro(const MicroCall& call) {
  using Rows = std::make_integer_sequence<int, mr>;
  static constexpr auto one_vector = micro_tiles_of<Products, 1>(Rows());
  static constexpr auto two_vectors = micro_tiles_of<Products, 2>(Rows());
  const auto& tiles = call.cols <= lanes_per_vector ? one_vector : two_vectors;
  tiles[static_cast<std::size_t>(call.rows - 1)](call);
}

// Pairs of lanes that x and y have in turn, added up.
template <class Products>
__attribute__((always_inline)) inline typename Products::Sums AddPairs(typename Products::Sums x,
                                                                       typename Products::Sums y) {
  using Sums = typename Products::Sums;
  return Products::Plus((Sums)_mm512_maskz_unpacklo_epi32(all, (__m512i)x, (__m512i)y),
                        (Sums)_mm512_maskz_unpackhi_epi32(all, (__m512i)x, (__m512i)y));
}
// Additions across the lanes of four vectors at a time.
template <class Products>
__attribute__((always_inline)) inline void FourTotals(const typename Products::Sums* of,
                                                      std::uint32_t (&to)[4]) {
  using Sums = typename Products::Sums;
  const auto low = (__m512i)AddPairs<Products>(of[0], of[1]),
             high = (__m512i)AddPairs<Products>(of[2], of[3]);
  Sums four = Products::Plus((Sums)_mm512_maskz_unpacklo_epi64(all_of_8, low, high),
                             (Sums)_mm512_maskz_unpackhi_epi64(all_of_8, low, high));
  auto lanes = (__m512i)four;
  four = Products::Plus(four, (Sums)_mm512_maskz_shuffle_i32x4(all, lanes, lanes, 0x4E));
  lanes = (__m512i)four;
  four = Products::Plus(four, (Sums)_mm512_maskz_shuffle_i32x4(all, lanes, lanes, 0xB1));
  _mm512_mask_storeu_epi32(to, 0xF, (__m512i)four);
}

// `together` rows of b, columns col, col + apart…, and all rows of a: dot products of whole
// vectors, k's last part masked.
template <class Products, int rows, int together>
void SkinnyColumns(const FewRowsCall& call, std::int64_t col, std::int64_t apart) {
  using Element = typename Products::Element;
  constexpr std::int64_t step = 64 / sizeof(Element);
  const std::int64_t row = call.row_bytes / static_cast<std::int64_t>(sizeof(Element));
  const std::int64_t ldb = apart * row;
  const auto* const all_of_b = reinterpret_cast<const Element*>(call.b);
  const Element* b = all_of_b + col * row;
  // Long streams: lines of each that are on their way, more than hide memory's latency, because a
  // prefetch is dropped while too many are. Short ones: the next call's rows, in the order of
  // memory.
  constexpr std::int64_t lines = 32;
  const bool in_streams = apart * call.k >= 8 * lines * step;
  const Element* coming =
      in_streams ? b + lines * step : all_of_b + call.cols * row + col * together * call.k;
  const std::int64_t beside = in_streams ? ldb : step, behind = in_streams ? step : together * step;
  const std::uint32_t* a = call.a;
  const __m512i ones = _mm512_set1_epi8(1);
  typename Products::Sums sums[together][rows];
  IntegerProducts::Sums of_columns[together];
#pragma GCC unroll 16
  for (int r = 0; r < together; ++r) {
    of_columns[r] = IntegerProducts::Zero();
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) sums[r][i] = Products::Zero();
  }
  const auto multiply = [&](auto whole) __attribute__((always_inline)) {
    __m512i columns[together];
#pragma GCC unroll 16
    for (int r = 0; r < together; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(coming + r * beside), _MM_HINT_T0);
      const Element* const from = b + r * ldb;
      if constexpr (whole) {
        columns[r] = _mm512_loadu_si512(from);
      } else {
        columns[r] = Products::LoadPart(call.k % step, from);
      }
      if constexpr (sizeof(Element) == 1) {
        of_columns[r] = IntegerProducts::Add(of_columns[r], ones, columns[r]);
      }
    }
    coming += behind;
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const __m512i of_a = _mm512_loadu_si512(a + i * lanes_per_vector);
#pragma GCC unroll 16
      for (int r = 0; r < together; ++r) sums[r][i] = Products::Add(sums[r][i], of_a, columns[r]);
    }
  };
  // Two loops of their own: accumulators of one with a choice of loads are copied and spilled.
  for (std::int64_t left = call.k / step; left > 0; --left, b += step) {
    multiply(std::true_type());
    a += rows * lanes_per_vector;
  }
  if (call.k % step > 0) multiply(std::false_type());
#pragma GCC unroll 16
  for (int r = 0; r < together; ++r) {
    const std::int64_t place = col + r * apart;
    if (call.column_sums != nullptr) {
      call.column_sums[place] = static_cast<std::int32_t>(IntegerProducts::Total(of_columns[r]));
    }
    constexpr int in_fours = rows / 4 * 4;
#pragma GCC unroll 16
    for (int i = 0; i < in_fours; i += 4) {
      std::uint32_t four[4];
      FourTotals<Products>(&sums[r][i], four);
      for (int t = 0; t < 4; ++t) call.sums[(i + t) * call.ld + place] = four[t];
    }
#pragma GCC unroll 16
    for (int i = in_fours; i < rows; ++i) {
      call.sums[i * call.ld + place] = Products::Total(sums[r][i]);
    }
  }
}

// As many rows of b at a time as leave registers for their sums, and enough of those for the
// latency; far apart, so that each is one of few long streams and not a short one.
template <class Products, int rows>
void SkinnyRowsOf(const FewRowsCall& call) {
  constexpr bool three = rows <= 6 || sizeof(typename Products::Element) == 2;
  constexpr int together = rows <= 4 ? 4 : three ? 3 : 2;
  const std::int64_t apart = call.cols / together;
  for (std::int64_t col = 0; col < apart; ++col) {
    SkinnyColumns<Products, rows, together>(call, col, apart);
  }
  for (std::int64_t col = apart * together; col < call.cols; ++col) {
    SkinnyColumns<Products, rows, 1>(call, col, 1);
  }
}

template <class Products, int... row>
void SkinnyOf(const FewRowsCall& call, std::integer_sequence<int, row...>) {
  ((call.rows == row + 1 ? SkinnyRowsOf<Products, row + 1>(call) : void()), ...);
}
template <class Products>
void Skinny(const FewRowsCall& call) {
  SkinnyOf<Products>(call, std::make_integer_sequence<int, skinny_rows>());
}
// Rows of a in whole vectors of lanes, the vectors of all rows side by side.
template <class Element>
std::int64_t RowLanes(std::int64_t k) {
  const std::int64_t lanes = (k + lane_elements<Element> - 1) / lane_elements<Element>;
  return (lanes + lanes_per_vector - 1) / lanes_per_vector * lanes_per_vector;
}
template <class Element>
void PackRows(const PackCall& call) {
  PackLanes<Element, lanes_per_vector>(call, RowLanes<Element>(call.k));
}
template <class Element>
std::int64_t RowWords(std::int64_t rows, std::int64_t k) {
  return rows * RowLanes<Element>(k);
}
template <class Products>
FewRows FewRowsOf(const char* path, bool shifts_a) {
  using Element = typename Products::Element;
  return {.path = path,
          .limit = skinny_rows,
          .together = 1,
          .shifts_a = shifts_a,
          .words = RowWords<Element>,
          .pack = PackRows<Element>,
          .multiply = Skinny<Products>};
}

}  // namespace
}  // namespace rooflane::gemm
HWY_POP_ATTRIBUTES

namespace rooflane::gemm {

namespace {

template <class Products>
Unit vector_unit(UnitKind kind, const FewRows& few) {
  using Element = typename Products::Element;
  Unit unit{};
  unit.kind = kind;
  unit.path = few.path;
  unit.into_c = IntoC::whole;
  unit.mr = mr, unit.nr = nr;
  unit.depth = unit.k_together = lane_elements<Element>, unit.words = 1;
  unit.micro = Micro<Products>;
  unit.pack_a = unit.pack_b = PackSteps<Element>;
  unit.few = few;
  return unit;
}

constexpr const Math* maths[] = {&math_bf16, &math_int8, &math_int8_dynamic};
constexpr DType types[] = {&float32,          &bfloat16, &int8, &uint8, &int32,
                           &int8_per_channel, &q8_0,     &q4_0, &q4_1};

}  // namespace

FewRows avx512_few_bfloat16() { return FewRowsOf<BFloat16Products>("vdpbf16ps", false); }
FewRows avx512_few_integers() { return FewRowsOf<IntegerProducts>("vpdpbusd", true); }

Unit avx512_bfloat16_unit() {
  Unit unit = vector_unit<BFloat16Products>(UnitKind::vdpbf16ps, avx512_few_bfloat16());
  unit.a_rounded = &bfloat16;
  return unit;
}
Unit avx512_integer_unit() {
  Unit unit = vector_unit<IntegerProducts>(UnitKind::vpdpbusd, avx512_few_integers());
  unit.integers = unit.shifts_a = true;
  unit.a_quantised = &uint8;
  unit.column_sums = SumColumns<nr>;
  return unit;
}

const Variant avx512 = unit_variant<units_of_avx512>("avx512", &avx512::backend, maths, types);

}  // namespace rooflane::gemm
