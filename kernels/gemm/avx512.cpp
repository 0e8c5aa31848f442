// GEMM, variant `avx512`: bfloat16 by vdpbf16ps, 8-bit integers by vpdpbusd, whose first operand is
// unsigned (s8 is packed 128 larger, and 128 times the sums of b's columns are taken off again).
// Micro-tile 12×32: 24 accumulators and two vectors of b in 32 registers, of which 4-5 cycles'
// latency times two a cycle need 10. Everything but the micro-kernel: unit_product.hpp,
// avx512_pack-inl.h. Weights in GGUF's blocks: avx512_blocks.cpp. The variant's name remains for
// one release: it is `hwy` with the unit fixed.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "backends/avx512.hpp"
#include "generated_catalogue.hpp"
#include "hwy/base.h"
#include "kernels/gemm/avx512_units.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/units.hpp"

// Sizes are asked for on any CPU.
namespace rooflane::gemm {
namespace {

constexpr int lanes_per_vector = 16;

// Rows of a in whole vectors of lanes, the vectors of all rows side by side.
template <class Element>
std::int64_t RowLanes(std::int64_t k) {
  const std::int64_t lanes = (k + lane_elements<Element> - 1) / lane_elements<Element>;
  return (lanes + lanes_per_vector - 1) / lanes_per_vector * lanes_per_vector;
}

}  // namespace
}  // namespace rooflane::gemm

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,f16c")
namespace rooflane::gemm {
namespace {

#include "kernels/gemm/avx512_pack-inl.h"

constexpr int mr = 12, vectors = 2, nr = vectors * lanes_per_vector;

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
  static Sums Plus(Sums x, Sums y) { return _mm512_add_ps(x, y); }
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
  static Sums Plus(Sums x, Sums y) { return x + y; }
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
      Products::Store(call.to + i * call.to_ld + j * lanes_per_vector,
                      (typename Products::Sums)sums[i][j]);
    }
  }
}

// A step is a lane.
template <class E>
void PackSteps(const PackCall& c) {
  PackLanes<E, Runs<1>>(c, c.steps);
}

template <class Products>
void Micro(const MicroCall& call) {
  with_constant<mr>(call.rows, [&](auto rows) {
    call.cols <= lanes_per_vector ? MicroTile<Products, rows, 1>(call)
                                  : MicroTile<Products, rows, vectors>(call);
  });
}

// Pairs of lanes that x and y have in turn, added up.
template <class Products>
__attribute__((always_inline)) inline typename Products::Sums AddPairs(typename Products::Sums x,
                                                                       typename Products::Sums y) {
  using Sums = typename Products::Sums;
  return Products::Plus((Sums)_mm512_maskz_unpacklo_epi32(all, (__m512i)x, (__m512i)y),
                        (Sums)_mm512_maskz_unpackhi_epi32(all, (__m512i)x, (__m512i)y));
}
// Quarters of a vector, added up.
template <class Products>
__attribute__((always_inline)) inline __m512i AddQuarters(typename Products::Sums x) {
  using Sums = typename Products::Sums;
  x = Products::Plus(x, (Sums)_mm512_maskz_shuffle_i32x4(all, (__m512i)x, (__m512i)x, 0x4E));
  return (__m512i)Products::Plus(
      x, (Sums)_mm512_maskz_shuffle_i32x4(all, (__m512i)x, (__m512i)x, 0xB1));
}
// Additions across the lanes of four vectors at a time.
template <class Products>
__attribute__((always_inline)) inline void FourTotals(const typename Products::Sums* of,
                                                      std::uint32_t (&to)[4]) {
  using Sums = typename Products::Sums;
  const auto low = (__m512i)AddPairs<Products>(of[0], of[1]),
             high = (__m512i)AddPairs<Products>(of[2], of[3]);
  const Sums four = Products::Plus((Sums)_mm512_maskz_unpacklo_epi64(all_of_8, low, high),
                                   (Sums)_mm512_maskz_unpackhi_epi64(all_of_8, low, high));
  const auto totals = (IntegerProducts::Sums)AddQuarters<Products>(four);
  // Not masked: what is stored so is loaded only when it is in L1.
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   (__m128i)__builtin_shufflevector(totals, totals, 0, 1, 2, 3));
}
// Of one, in the same order: a sum does not depend on how many rows there are.
template <class Products>
__attribute__((always_inline)) inline std::uint32_t Total(typename Products::Sums of) {
  using Sums = typename Products::Sums;
  of = Products::Plus(of, (Sums)_mm512_maskz_shuffle_epi32(all, (__m512i)of, _MM_PERM_BADC));
  of = Products::Plus(of, (Sums)_mm512_maskz_shuffle_epi32(all, (__m512i)of, _MM_PERM_CDAB));
  return static_cast<std::uint32_t>(((IntegerProducts::Sums)AddQuarters<Products>(of))[0]);
}

// Whole vectors of k, from `first` on. Between parts the sums of a block of columns are kept as
// vectors, those of a column's rows and of b side by side.
struct PartOfK {
  std::int64_t first, count;
  bool last;
  std::uint32_t* kept;
};

// `together` rows of b, columns col, col + apart…, and all rows of a: dot products of whole
// vectors, k's last part masked.
template <class Products, int rows, int together, bool in_parts>
void SkinnyColumns(const FewRowsCall& call, const PartOfK& part, std::int64_t col,
                   std::int64_t apart) {
  using Element = typename Products::Element;
  using Sums = typename Products::Sums;
  constexpr std::int64_t step = 64 / sizeof(Element), line = step;
  const std::int64_t row = call.row_bytes / static_cast<std::int64_t>(sizeof(Element));
  const std::int64_t ldb = apart * row;
  const auto* const all_of_b = reinterpret_cast<const Element*>(call.b);
  const Element* b = all_of_b + col * row + part.first * step;
  // Long streams: lines of each that are on their way, more than hide memory's latency, because a
  // prefetch is dropped while too many are. Else what the next call reads, in the order of memory:
  // into L2 where a call's columns are more than L1 holds.
  constexpr std::int64_t lines = 32;
  constexpr auto hint = in_parts ? _MM_HINT_T1 : _MM_HINT_T0;
  const bool in_streams = !in_parts && apart * call.k >= 8 * lines * step;
  const Element* coming = in_streams ? b + lines * step
                                     : all_of_b + call.cols * (row + part.first * step) +
                                           col * together * part.count * step;
  const std::int64_t beside = in_streams ? ldb : line, behind = in_streams ? line : together * line;
  const std::uint32_t* a = call.a + part.first * rows * lanes_per_vector;
  const __m512i ones = _mm512_set1_epi8(1);
  const auto kept = [&](int r, int i) __attribute__((always_inline)) {
    return part.kept + ((col + r * apart) * (rows + 1) + i) * lanes_per_vector;
  };
  const bool begins = !in_parts || part.first == 0;
  Sums sums[together][rows];
  IntegerProducts::Sums of_columns[together];
#pragma GCC unroll 16
  for (int r = 0; r < together; ++r) {
    of_columns[r] = begins ? IntegerProducts::Zero() : IntegerProducts::Load(kept(r, rows));
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      sums[r][i] = begins ? Products::Zero() : Products::Load(kept(r, i));
    }
  }
  const auto multiply = [&](auto whole) __attribute__((always_inline)) {
    __m512i columns[together];
#pragma GCC unroll 16
    for (int r = 0; r < together; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(coming + r * beside), hint);
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
  for (std::int64_t left = part.count; left > 0; --left, b += step) {
    multiply(std::true_type());
    a += rows * lanes_per_vector;
  }
  if (in_parts && !part.last) {
#pragma GCC unroll 16
    for (int r = 0; r < together; ++r) {
      if (sizeof(Element) == 1) IntegerProducts::Store(kept(r, rows), of_columns[r]);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) Products::Store(kept(r, i), sums[r][i]);
    }
    return;
  }
  if (call.k % step > 0) multiply(std::false_type());
  if constexpr (together == 4) {  // rows are fewer, or as many
    std::uint32_t four[4];
    if (call.column_sums != nullptr) {
      FourTotals<IntegerProducts>(of_columns, four);
      for (int r = 0; r < together; ++r) {
        call.column_sums[col + r * apart] = static_cast<std::int32_t>(four[r]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const Sums of_row[4] = {sums[0][i], sums[1][i], sums[2][i], sums[3][i]};
      FourTotals<Products>(of_row, four);
      for (int r = 0; r < together; ++r) call.sums[i * call.ld + col + r * apart] = four[r];
    }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < together; ++r) {
    const std::int64_t place = col + r * apart;
    if (call.column_sums != nullptr) {
      call.column_sums[place] = static_cast<std::int32_t>(Total<IntegerProducts>(of_columns[r]));
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
      call.sums[i * call.ld + place] = Total<Products>(sums[r][i]);
    }
  }
}

// As many rows of b at a time as leave registers for their sums, and enough of those for the
// latency; far apart, so that each is one of few long streams and not a short one.
template <class Products, int rows, bool in_parts>
void SkinnyBlock(const FewRowsCall& call, const PartOfK& part) {
  constexpr bool three = rows <= 6 || sizeof(typename Products::Element) == 2;
  constexpr int together = rows <= 4 ? 4 : three ? 3 : 2;
  const std::int64_t apart = call.cols / together;
  for (std::int64_t col = 0; col < apart; ++col) {
    SkinnyColumns<Products, rows, together, in_parts>(call, part, col, apart);
  }
  for (std::int64_t col = apart * together; col < call.cols; ++col) {
    SkinnyColumns<Products, rows, 1, in_parts>(call, part, col, 1);
  }
}

// Where a's rows do not fit an L1 of 48 KB, k is in parts that fill half of it, and columns in
// blocks whose b and kept sums lie in L2.
template <class Products, int rows>
void SkinnyRowsOf(const FewRowsCall& call) {
  constexpr std::int64_t step = 64 / sizeof(typename Products::Element);
  constexpr std::int64_t of_a = 24 << 10, of_b = 128 << 10, vector_bytes = 64;
  constexpr std::int64_t most = of_a / vector_bytes / rows;
  const std::int64_t whole = call.k / step;
  if (whole * rows * vector_bytes <= 2 * of_a)
    return SkinnyBlock<Products, rows, false>(call, {0, whole, true, nullptr});
  alignas(64) std::uint32_t kept[of_a / word_bytes];
  constexpr std::int64_t most_kept = of_a / vector_bytes / (rows + 1);
  const std::int64_t width = std::clamp<std::int64_t>(of_b / call.row_bytes, 12, most_kept);
  for (std::int64_t first = 0; first < call.cols; first += width) {
    FewRowsCall block = call;
    block.b += first * call.row_bytes;
    block.sums += first;
    if (call.column_sums != nullptr) block.column_sums += first;
    block.cols = std::min(width, call.cols - first);
    for (std::int64_t p = 0; p < whole; p += most) {
      const std::int64_t count = std::min(most, whole - p);
      SkinnyBlock<Products, rows, true>(block, {p, count, p + count == whole, kept});
    }
  }
}

template <class Products>
void Skinny(const FewRowsCall& call) {
  with_constant<skinny_rows>(call.rows, [&](auto rows) { SkinnyRowsOf<Products, rows>(call); });
}
template <class Element>
void PackRows(const PackCall& call) {
  PackLanes<Element, Runs<lanes_per_vector>>(call, RowLanes<Element>(call.k));
}

}  // namespace
}  // namespace rooflane::gemm
HWY_POP_ATTRIBUTES

// Records are made on any CPU.
namespace rooflane::gemm {

namespace {

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
  unit.a_converted = &bfloat16;
  return unit;
}
Unit avx512_integer_unit() {
  Unit unit = vector_unit<IntegerProducts>(UnitKind::vpdpbusd, avx512_few_integers());
  unit.integers = unit.shifts_a = true;
  unit.a_quantised = &uint8;
  unit.column_sums = SumColumns<Runs<1>, nr>;
  return unit;
}

const Variant avx512 = unit_variant<units_of_avx512>("avx512", &avx512::backend, maths, types);

}  // namespace rooflane::gemm
