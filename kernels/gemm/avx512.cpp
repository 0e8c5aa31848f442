// GEMM, variant `avx512`: bfloat16 by vdpbf16ps, 8-bit integers by vpdpbusd, whose first operand is
// unsigned (s8 is packed 128 larger, and 128 times the sums of b's columns are taken off again).
// Micro-tile 12×32: 24 accumulators and two vectors of b in 32 registers, of which 4-5 cycles'
// latency times two a cycle need 10. Everything but the micro-kernel: dot_plan.hpp,
// dot_common-inl.h. Weights in GGUF's blocks: avx512_blocks.cpp.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backends/avx512.hpp"
#include "generated_catalogue.hpp"
#include "hwy/base.h"
#include "kernels/gemm/avx512_blocks.hpp"
#include "kernels/gemm/avx512_skinny.hpp"
#include "kernels/gemm/block_plan.hpp"
#include "kernels/gemm/dot_plan.hpp"
#include "kernels/gemm/quantised_rows.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,f16c")
namespace rooflane::gemm {
namespace {

// Masks that keep everything: GCC 12 warns of what intrinsics without one start from.
constexpr __mmask16 all = 0xFFFF;
constexpr __mmask8 all_of_8 = 0xFF;
#include "kernels/gemm/dot_common-inl.h"

constexpr int mr = 12, vectors = 2, lanes_per_vector = 16, nr = vectors * lanes_per_vector;

// c += a·b in each lane.
struct BFloat16Products {
  using Element = std::uint16_t;
  using Sums = __m512;
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
  // Not __m512i, whose 64-bit lanes would let GCC 12 copy an accumulator before and after each
  // product.
  using Sums = std::int32_t __attribute__((vector_size(64)));
  static Sums Zero() { return Sums{}; }
  static Sums Load(const void* from) { return (Sums)_mm512_loadu_si512(from); }
  static void Store(void* to, Sums sums) { _mm512_storeu_si512(to, (__m512i)sums); }
  static Sums Add(Sums c, __m512i a, __m512i b) {
    return (Sums)_mm512_dpbusd_epi32((__m512i)c, a, b);
  }
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
  typename Products::Sums sums[rows][count];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < count; ++j) {
      sums[i][j] = call.add ? Products::Load(call.sums + i * call.ld + j * lanes_per_vector)
                            : Products::Zero();
    }
  }
  const std::uint32_t* a = call.a;
  const std::uint32_t* b = call.b;
  for (std::int64_t left = call.lanes; left > 0; --left, a += rows, b += nr) {
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
      Products::Store(call.sums + i * call.ld + j * lanes_per_vector, sums[i][j]);
    }
  }
}

// 16 rows of 16 lanes become columns: pairs, fours, then quarters of vectors change places.
__attribute__((always_inline)) inline void Transpose(__m512i (&rows)[16]) {
  __m512i pairs[16], fours[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_maskz_unpacklo_epi32(all, rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_maskz_unpackhi_epi32(all, rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_maskz_unpacklo_epi64(all_of_8, pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_maskz_unpackhi_epi64(all_of_8, pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_maskz_unpacklo_epi64(all_of_8, pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_maskz_unpackhi_epi64(all_of_8, pairs[i + 1], pairs[i + 3]);
  }
  constexpr int even = 0x88, odd = 0xDD;  // quarters 0 and 2, 1 and 3 of both
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_maskz_shuffle_i32x4(all, fours[i], fours[i + 4], even);
    const __m512i b = _mm512_maskz_shuffle_i32x4(all, fours[i + 8], fours[i + 12], even);
    const __m512i c = _mm512_maskz_shuffle_i32x4(all, fours[i], fours[i + 4], odd);
    const __m512i d = _mm512_maskz_shuffle_i32x4(all, fours[i + 8], fours[i + 12], odd);
    rows[i] = _mm512_maskz_shuffle_i32x4(all, a, b, even);
    rows[i + 4] = _mm512_maskz_shuffle_i32x4(all, c, d, even);
    rows[i + 8] = _mm512_maskz_shuffle_i32x4(all, a, b, odd);
    rows[i + 12] = _mm512_maskz_shuffle_i32x4(all, c, d, odd);
  }
}

// Vectors along memory: 16 lanes of 16 of them at a time; the rest as PackLanes has it.
template <class E>
void PackVectors(const PackCall& c) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E), side = 16;
  const std::int64_t lanes = c.inner == 1 && c.width >= mr ? c.k / group / side * side : 0;
  const __m512i xor_mask = _mm512_set1_epi32(static_cast<int>(c.xor_mask));
  const E* const from = static_cast<const E*>(c.from);
  for (std::int64_t v0 = 0; v0 < c.width; v0 += side) {
    const auto kept = static_cast<__mmask16>((1u << std::min(side, c.width - v0)) - 1);
    for (std::int64_t g = 0; g < lanes; g += side) {
      __m512i rows[side];
#pragma GCC unroll 16
      for (int v = 0; v < side; ++v) {
        rows[v] = _mm512_setzero_si512();
        if (v0 + v >= c.count) continue;
        const E* const vector = from + (v0 + v) * c.outer + g * group;
        rows[v] = _mm512_xor_si512(_mm512_loadu_si512(vector), xor_mask);
      }
      Transpose(rows);
#pragma GCC unroll 16
      for (int lane = 0; lane < side; ++lane) {
        _mm512_mask_storeu_epi32(c.to + (g + lane) * c.width + v0, kept, rows[lane]);
      }
    }
  }
  if (lanes == c.lanes) return;
  PackCall rest = c;
  rest.from = from + lanes * group * c.inner;
  rest.k -= lanes * group;
  rest.lanes -= lanes;
  rest.to += lanes * c.width;
  PackLanes<E>(rest);
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
void SkinnyColumns(const SkinnyCall& call, std::int64_t col, std::int64_t apart) {
  using Element = typename Products::Element;
  constexpr std::int64_t step = 64 / sizeof(Element);
  const std::int64_t lanes = call.lanes, ldb = apart * call.ldb;
  const auto* const all_of_b = static_cast<const Element*>(call.b);
  const Element* b = all_of_b + col * call.ldb;
  // Long streams: lines of each that are on their way, more than hide memory's latency, because a
  // prefetch is dropped while too many are. Short ones: the next call's rows, in the order of
  // memory.
  constexpr std::int64_t lines = 32;
  const bool in_streams = apart * call.k >= 8 * lines * step;
  const Element* coming =
      in_streams ? b + lines * step : all_of_b + call.cols * call.ldb + col * together * call.k;
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
      const __m512i row = _mm512_loadu_si512(a + i * lanes);
#pragma GCC unroll 16
      for (int r = 0; r < together; ++r) sums[r][i] = Products::Add(sums[r][i], row, columns[r]);
    }
  };
  // Two loops of their own: accumulators of one with a choice of loads are copied and spilled.
  for (std::int64_t left = call.k / step; left > 0; --left, a += lanes_per_vector, b += step) {
    multiply(std::true_type());
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
void SkinnyRowsOf(const SkinnyCall& call) {
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
void SkinnyOf(const SkinnyCall& call, std::integer_sequence<int, row...>) {
  ((call.rows == row + 1 ? SkinnyRowsOf<Products, row + 1>(call) : void()), ...);
}
template <class Products>
void Skinny(const SkinnyCall& call) {
  SkinnyOf<Products>(call, std::make_integer_sequence<int, skinny_rows>());
}

}  // namespace
}  // namespace rooflane::gemm
HWY_POP_ATTRIBUTES

namespace rooflane::gemm {

SkinnyProducts avx512_skinny_bfloat16() { return {Skinny<BFloat16Products>, "vdpbf16ps", false}; }
SkinnyProducts avx512_skinny_integers() { return {Skinny<IntegerProducts>, "vpdpbusd", true}; }

namespace {

constexpr DotUnit bfloat16_unit = {.path = "vdpbf16ps",
                                   .group = 2,
                                   .mr = mr,
                                   .nr = nr,
                                   .run = 1,
                                   .whole_panels = false,
                                   .shifts_a = false,
                                   .micro = Micro<BFloat16Products>,
                                   .skinny = avx512_skinny_bfloat16,
                                   .pack = PackVectors<std::uint16_t>,
                                   .column_sums = nullptr,
                                   .finish = FinishTile,
                                   .convert = RoundRow,
                                   .begin = nullptr,
                                   .end = nullptr};
constexpr DotUnit integer_unit = {.path = "vpdpbusd",
                                  .group = 4,
                                  .mr = mr,
                                  .nr = nr,
                                  .run = 1,
                                  .whole_panels = false,
                                  .shifts_a = true,
                                  .micro = Micro<IntegerProducts>,
                                  .skinny = avx512_skinny_integers,
                                  .pack = PackVectors<std::uint8_t>,
                                  .column_sums = SumColumns<nr>,
                                  .finish = FinishTile,
                                  .convert = QuantiseRow,
                                  .begin = nullptr,
                                  .end = nullptr};

const DotUnit& unit_of(const Problem&, const Environment& env) {
  return env.math == math_bf16.name ? bfloat16_unit : integer_unit;
}

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = avx512::missing_instruction(env.math == math_bf16.name)) return reason;
  return dot_unsupported(problem, env);
}

// Weights in blocks have one way.
const BlockUnit* block_unit_of(const Problem& problem) {
  return avx512_block_unit(problem.dtype("b_type"));
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  if (block_unit_of(problem) != nullptr) return {Tuning()};
  return dot_tunings(problem, env, unit_of(problem, env));
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment&) {
  if (block_unit_of(problem) == nullptr || tuning.values().empty()) return std::nullopt;
  return "tunables are those of operands without blocks; weights in blocks have none";
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands& constants) {
  if (const BlockUnit* const unit = block_unit_of(problem)) {
    return block_plan(problem, env, constants, *unit, integer_unit.finish);
  }
  return dot_plan(problem, tuning, env, constants, unit_of(problem, env));
}

constexpr DType types[] = {&float32,          &bfloat16, &int8, &uint8, &int32,
                           &int8_per_channel, &q8_0,     &q4_0, &q4_1};

}  // namespace

const Variant avx512 = {.name = "avx512",
                        .kernel = &kernel,
                        .backend = &avx512::backend,
                        .threads = Threads::many,
                        .tunables = dot_tunables,
                        .unsupported = unsupported,
                        .tunings = tunings,
                        .plan = plan,
                        .tuning_defect = tuning_defect,
                        .maths = dot_maths,
                        .dtypes = types};

}  // namespace rooflane::gemm
