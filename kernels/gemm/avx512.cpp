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
#include <utility>

#include "backends/avx512.hpp"
#include "generated_catalogue.hpp"
#include "hwy/base.h"
#include "kernels/gemm/avx512_blocks.hpp"
#include "kernels/gemm/block_plan.hpp"
#include "kernels/gemm/dot_plan.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,f16c")
namespace rooflane::gemm {
namespace {

#include "kernels/gemm/avx512_lanes-inl.h"
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
  static __m512i LoadPart(std::int64_t elements, const void* from) {
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << elements) - 1), from);
  }
};

struct IntegerProducts {
  using Element = std::uint8_t;
  using Sums = __m512i;
  static Sums Zero() { return _mm512_setzero_si512(); }
  static Sums Load(const void* from) { return _mm512_loadu_si512(from); }
  static void Store(void* to, Sums sums) { _mm512_storeu_si512(to, sums); }
  static Sums Add(Sums c, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(c, a, b); }
  static std::uint32_t Total(Sums sums) {
    sums = _mm512_add_epi32(sums, _mm512_maskz_shuffle_i32x4(all, sums, sums, 0x4E));
    sums = _mm512_add_epi32(sums, _mm512_maskz_shuffle_i32x4(all, sums, sums, 0xB1));
    sums = _mm512_add_epi32(sums, _mm512_maskz_shuffle_epi32(all, sums, _MM_PERM_BADC));
    const auto pair = static_cast<std::uint64_t>(sums[0]);
    return static_cast<std::uint32_t>(pair) + static_cast<std::uint32_t>(pair >> 32);
  }
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

// Bytes before they are read: some 16 lines in flight hide memory's latency, 100 ns at 10 GB/s a
// stream.
constexpr std::int64_t prefetch_bytes = 1024;

// `together` rows of b, columns col, col + apart…, and all rows of a: dot products of whole
// vectors, k's last part masked.
template <class Products, int rows, int together>
void SkinnyColumns(const SkinnyCall& call, std::int64_t col, std::int64_t apart) {
  using Element = Products::Element;
  constexpr std::int64_t step = 64 / sizeof(Element);
  const Element* const b = static_cast<const Element*>(call.b) + col * call.ldb;
  const __m512i ones = _mm512_set1_epi8(1);
  typename Products::Sums sums[rows][together];
  __m512i of_columns[together];
#pragma GCC unroll 16
  for (int r = 0; r < together; ++r) {
    of_columns[r] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) sums[i][r] = Products::Zero();
  }
  for (std::int64_t p = 0; p < call.k; p += step) {
    const bool whole = p + step <= call.k;
    __m512i columns[together];
#pragma GCC unroll 16
    for (int r = 0; r < together; ++r) {
      const Element* const from = b + r * apart * call.ldb + p;
      _mm_prefetch(reinterpret_cast<const char*>(from) + prefetch_bytes, _MM_HINT_T0);
      columns[r] = whole ? _mm512_loadu_si512(from) : Products::LoadPart(call.k - p, from);
      if constexpr (sizeof(Element) == 1) {
        of_columns[r] = _mm512_dpbusd_epi32(of_columns[r], ones, columns[r]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const __m512i row =
          _mm512_loadu_si512(call.a + i * call.lanes + p / (step / lanes_per_vector));
#pragma GCC unroll 16
      for (int r = 0; r < together; ++r) sums[i][r] = Products::Add(sums[i][r], row, columns[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < together; ++r) {
    if (call.column_sums != nullptr) {
      call.column_sums[col + r * apart] =
          static_cast<std::int32_t>(IntegerProducts::Total(of_columns[r]));
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      call.sums[i * call.ld + col + r * apart] = Products::Total(sums[i][r]);
    }
  }
}

// 16 columns as lanes: no additions across lanes, and a is read once for all of them, in steps of a
// cache line of each row of b.
template <class Products, int rows>
void SkinnyLanes(const SkinnyCall& call, std::int64_t col) {
  constexpr std::int64_t line = 64, line_lanes = line / 4;
  const std::int64_t stride =
      call.ldb * static_cast<std::int64_t>(sizeof(typename Products::Element));
  const std::int64_t bytes = call.k * static_cast<std::int64_t>(sizeof(typename Products::Element));
  const auto* const b = static_cast<const std::uint8_t*>(call.b) + col * stride;
  const std::uint32_t* a = call.a;
  Prefetches prefetches{b + group_columns * stride, static_cast<const std::uint8_t*>(call.end),
                        group_columns * line};
  typename Products::Sums sums[rows];
  __m512i of_columns = _mm512_setzero_si512();
  const __m512i ones = _mm512_set1_epi8(1);
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) sums[i] = Products::Zero();
  const auto step = [&](const std::uint8_t* from, std::int64_t apart)
      __attribute__((always_inline)) {
    prefetches.Next();
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      __m512i lanes[4];
      FourLanes(from + 16 * v, apart, lanes);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        if constexpr (sizeof(typename Products::Element) == 1) {
          of_columns = _mm512_dpbusd_epi32(of_columns, ones, lanes[g]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
          sums[i] = Products::Add(sums[i], Broadcast(a + i * call.lanes + 4 * v + g), lanes[g]);
        }
      }
    }
    a += line_lanes;
  };
  std::int64_t p = 0;
  for (; p + line <= bytes; p += line) step(b + p, stride);
  if (p < bytes) {
    std::uint8_t rest[group_columns * line] = {};
    for (int j = 0; j < group_columns; ++j) {
      std::memcpy(rest + j * line, b + j * stride + p, static_cast<std::size_t>(bytes - p));
    }
    step(rest, line);
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) Products::Store(call.sums + i * call.ld + col, sums[i]);
  if (call.column_sums != nullptr) _mm512_storeu_si512(call.column_sums + col, of_columns);
}

// From so many rows on shuffles cost less than adding lanes and reading a for each few columns.
constexpr int least_rows_of_lanes = 2;

// What lanes leave over: as many rows of b at a time as leave registers for their sums, and enough
// of those for the latency. They are far apart, so that each is one of few long streams.
template <class Products, int rows>
void SkinnyRowsOf(const SkinnyCall& call) {
  std::int64_t first = 0;
  if constexpr (rows >= least_rows_of_lanes) {
    for (; first + group_columns <= call.cols; first += group_columns)
      SkinnyLanes<Products, rows>(call, first);
  }
  constexpr int together = rows >= least_rows_of_lanes ? 1 : 4;
  const std::int64_t apart = (call.cols - first) / together;
  for (std::int64_t col = first; col < first + apart; ++col) {
    SkinnyColumns<Products, rows, together>(call, col, apart);
  }
  for (std::int64_t col = first + apart * together; col < call.cols; ++col) {
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
namespace {

constexpr DotUnit bfloat16_unit = {.path = "vdpbf16ps",
                                   .group = 2,
                                   .mr = mr,
                                   .nr = nr,
                                   .run = 1,
                                   .whole_panels = false,
                                   .shifts_a = false,
                                   .micro = Micro<BFloat16Products>,
                                   .skinny = Skinny<BFloat16Products>,
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
                                  .skinny = Skinny<IntegerProducts>,
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
                        .maths = dot_maths,
                        .dtypes = types};

}  // namespace rooflane::gemm
