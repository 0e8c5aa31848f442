// Weights in GGUF's blocks times rows of 8-bit integers (math int8-dynamic) by vpdpbusd. 16 rows of
// b are transposed in registers, so that a lane of a vector is a column of c: sums of a block need
// no additions across lanes, and one conversion and one multiply-add serve 16 columns. If a has few
// rows, they are multiplied by the registers just transposed. If it has many, or if b is constant,
// micro-panels are used.
//
// A lane is 32 bits: 4 integers that follow one another along k. A block of 32 elements of k, the
// unit's step, is 8 lanes. Each block adds to an element of c: step · scale · (Σ q·w - zero·Σ q).
// Here q are the row's integers and w the weight's, made unsigned by `zero`. In formats with a
// minimum: step · (scale · Σ q·w + minimum · Σ q). A block's sum is exact as integer and rounded
// once as real number: products of scales (float16) and minima with Σ q have fewer bits than a
// float32.
//   A micro-panel  [blocks][8 + 2][rows]: 8 lanes, the steps (float), and what Σ q adds to the
//   sums:
//                  -zero·Σ q as integer, or where there is a minimum Σ q as float
//   B micro-panel  [blocks]: of each 16 columns the 4 or 8 lanes as they are stored; then all
//   scales, and all minima (float16). It has the bytes that b has, and is decoded in registers.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/float16.hpp"
#include "hwy/base.h"
#include "kernels/gemm/avx512_units.hpp"
#include "kernels/gemm/quantised_rows.hpp"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
namespace rooflane::gemm {
namespace {

#include "kernels/gemm/avx512_lanes-inl.h"

constexpr std::int64_t weights_per_block = 32, lanes_per_block = 8;
constexpr std::int64_t words_per_block = lanes_per_block + 2;
constexpr int mr = 12, vectors = 2, nr = vectors * group_columns, most_rows = 8;

// A block of 16 columns as it is kept, a lane of each vector a column's; scales and minima are
// float16.
template <int lanes>
struct StoredBlock {
  __m512i integers[lanes];
  __m256i scale, minimum;
};

// One lane of each of 16 rows; its lower or upper half is a float16.
__attribute__((always_inline)) inline __m256i LowerHalves(__m512i lanes) {
  return _mm512_maskz_cvtepi32_epi16(all, lanes);
}
__attribute__((always_inline)) inline __m256i UpperHalves(__m512i lanes) {
  return LowerHalves(_mm512_maskz_srli_epi32(all, lanes, 16));
}

// Formats: `together` blocks fill whole vectors of 16 bytes, so that heads are transposed with the
// integers. Behind a head of 2 bytes every other block begins in the middle of a lane: its first 2
// bytes come last, beside the last 2. Rotation() says so to whoever lays out op(a).
template <int lanes>
struct ScaleOnly {
  static constexpr int bytes = 2 + 4 * lanes, stored_lanes = lanes, together = 8;
  static constexpr bool has_minimum = false;
  static constexpr int Rotation(std::int64_t block) { return block % 2 == 0 ? 2 : 0; }
  // A block among all lanes of `together` blocks.
  template <int block>
  __attribute__((always_inline)) static void Find(const __m512i* all_lanes,
                                                  StoredBlock<lanes>& to) {
    const __m512i* const head = all_lanes + bytes * block / 4;
    for (int g = 0; g < lanes; ++g) to.integers[g] = head[1 + g];
    if (Rotation(block) == 0) {
      to.scale = UpperHalves(head[0]);
    } else {
      to.scale = LowerHalves(head[0]);
      to.integers[lanes - 1] = _mm512_mask_blend_epi16(0xAAAAAAAA, head[lanes], head[0]);
    }
  }
};
struct ScaleAndMinimum {
  static constexpr int bytes = 20, stored_lanes = 4, together = 4;
  static constexpr bool has_minimum = true;
  static constexpr int Rotation(std::int64_t) { return 0; }
  template <int block>
  __attribute__((always_inline)) static void Find(const __m512i* all_lanes, StoredBlock<4>& to) {
    const __m512i* const head = all_lanes + bytes * block / 4;
    for (int g = 0; g < stored_lanes; ++g) to.integers[g] = head[1 + g];
    to.scale = LowerHalves(head[0]);
    to.minimum = UpperHalves(head[0]);
  }
};

// Decode(): of stored lane g the lane g + part · stored_lanes of the block, without sign.
// Byte i holds element i below element i + 16.
template <class Head>
struct Nibbles : Head {
  static constexpr int zero = Head::has_minimum ? 0 : 8, period = 16, parts = 2;
  template <int part>
  __attribute__((always_inline)) static __m512i Decode(__m512i both) {
    if (part == 1) both = _mm512_maskz_srli_epi16(~0u, both, 4);
    return _mm512_and_si512(both, _mm512_set1_epi8(15));
  }
};
struct SignedBytes : ScaleOnly<8> {
  static constexpr int zero = 128, period = 32, parts = 1;
  template <int part>
  __attribute__((always_inline)) static __m512i Decode(__m512i integers) {
    return _mm512_xor_si512(integers, _mm512_set1_epi8(-128));
  }
};

// Words of a step of a B micro-panel: integers of its two groups of columns, scales, minima.
template <class Format>
constexpr std::int64_t panel_words = std::int64_t{Format::bytes} * nr / word_bytes;
template <class Format>
constexpr std::int64_t scale_words = std::int64_t{Format::stored_lanes} * nr;

// A step of a B micro-panel.
template <class Format>
struct PanelBlocks {
  const std::uint32_t* at;
  __m512i Integers(int group, int g) const {
    return _mm512_loadu_si512(at + (group * Format::stored_lanes + g) * group_columns);
  }
  __m256i Halves(int group, std::int64_t word) const {
    return _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(at + scale_words<Format> + word + group * 8));
  }
  __m256i Scale(int group) const { return Halves(group, 0); }
  __m256i Minimum(int group) const { return Halves(group, vectors * 8); }
};
// One group of columns in registers.
template <class Format>
struct OneBlock {
  const StoredBlock<Format::stored_lanes>& block;
  __m512i Integers(int, int g) const { return block.integers[g]; }
  __m256i Scale(int) const { return block.scale; }
  __m256i Minimum(int) const { return block.minimum; }
};

// body(block) for block `first` of those that lie together, loaded as far as it needs, and the ones
// behind it up to `count`.
template <class Format, int first, class Body>
__attribute__((always_inline)) inline void BlocksFrom(const std::uint8_t* b, std::int64_t stride,
                                                      std::int64_t count, __m512i* lanes,
                                                      const Body& body) {
  if constexpr (first < Format::together) {
    if (first >= count) return;
    constexpr int vector = 16;
    constexpr int loaded = (Format::bytes * first + vector - 1) / vector;
    constexpr int needed = (Format::bytes * (first + 1) + vector - 1) / vector;
#pragma GCC unroll 4
    for (int v = loaded; v < needed; ++v) FourLanes(b + v * vector, stride, lanes + 4 * v);
    StoredBlock<Format::stored_lanes> block;
    Format::template Find<first>(lanes, block);
    body(block);
    BlocksFrom<Format, first + 1>(b, stride, count, lanes, body);
  }
}

// body(block) for each block of 16 rows of b. `count` rows exist; the others are zeros.
template <class Format, class Body>
__attribute__((always_inline)) inline void ForBlocks(const std::uint8_t* b, std::int64_t stride,
                                                     std::int64_t count, std::int64_t blocks,
                                                     const Body& body) {
  constexpr std::int64_t bytes = Format::bytes * Format::together;
  __m512i lanes[bytes / 4];
  if (count >= group_columns) {
    for (; blocks >= Format::together; blocks -= Format::together, b += bytes) {
      BlocksFrom<Format, 0>(b, stride, Format::together, lanes, body);
    }
  }
  for (; blocks > 0; blocks -= Format::together, b += bytes) {
    const std::int64_t here = std::min<std::int64_t>(blocks, Format::together);
    // What lies behind a row is not read; whatever these bytes were, no block is made of them.
    std::uint8_t rest[group_columns * bytes];
    if (count < group_columns) std::fill_n(rest, group_columns * bytes, std::uint8_t{0});
    const std::int64_t left = here * Format::bytes;
    for (int j = 0; j < std::min<std::int64_t>(count, group_columns); ++j) {
      for (std::int64_t at = 0; at < left; at += 64) {
        const auto some =
            static_cast<__mmask64>(at + 64 > left ? (1ull << (left - at)) - 1 : ~0ull);
        _mm512_mask_storeu_epi8(rest + j * bytes + at, some,
                                _mm512_maskz_loadu_epi8(some, b + j * stride + at));
      }
    }
    BlocksFrom<Format, 0>(rest, bytes, here, lanes, body);
  }
}

__attribute__((always_inline)) inline __m512 BroadcastFloat(const std::uint32_t* from) {
  return _mm512_set1_ps(std::bit_cast<float>(*from));
}

// sums += the block's lane g, and those that lie in the same bytes, times a's.
template <class Format, int part, int rows, int groups>
__attribute__((always_inline)) inline void AddLanes(const __m512i (&stored)[groups], int g,
                                                    const std::uint32_t* a,
                                                    __m512i (&sums)[rows][groups]) {
  if constexpr (part < Format::parts) {
    const std::uint32_t* const of_a = a + (g + part * Format::stored_lanes) * rows;
    __m512i lanes[groups];
#pragma GCC unroll 2
    for (int v = 0; v < groups; ++v) lanes[v] = Format::template Decode<part>(stored[v]);
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
      const __m512i row = Broadcast(of_a + i);
#pragma GCC unroll 2
      for (int v = 0; v < groups; ++v) {
        sums[i][v] = _mm512_dpbusd_epi32(sums[i][v], lanes[v], row);
      }
    }
    AddLanes<Format, part + 1>(stored, g, a, sums);
  }
}

// totals += step · (scale · Σ q·w + minimum · Σ q) of one block of 16 columns or 32 and all rows of
// a. Totals are in L1, as integer sums take the registers.
template <class Format, int rows, int groups, class Blocks>
__attribute__((always_inline)) inline void MultiplyBlock(const Blocks& b, const std::uint32_t* a,
                                                         float* totals, std::int64_t ld) {
  const std::uint32_t* const steps = a + lanes_per_block * rows;
  const std::uint32_t* const quotients = steps + rows;
  __m512i sums[rows][groups];
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < groups; ++v) {
      sums[i][v] = Format::has_minimum ? _mm512_setzero_si512() : Broadcast(quotients + i);
    }
  }
#pragma GCC unroll 8
  for (int g = 0; g < Format::stored_lanes; ++g) {
    __m512i stored[groups];
#pragma GCC unroll 2
    for (int v = 0; v < groups; ++v) stored[v] = b.Integers(v, g);
    AddLanes<Format, 0>(stored, g, a, sums);
  }
#pragma GCC unroll 2
  for (int v = 0; v < groups; ++v) {
    const __m512 scale = _mm512_maskz_cvtph_ps(all, b.Scale(v));
    __m512 minimum;
    if constexpr (Format::has_minimum) minimum = _mm512_maskz_cvtph_ps(all, b.Minimum(v));
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
      const __m512 integers = _mm512_maskz_cvtepi32_ps(all, sums[i][v]);
      __m512 block;
      if constexpr (Format::has_minimum) {
        block =
            _mm512_fmadd_ps(scale, integers, _mm512_mul_ps(minimum, BroadcastFloat(quotients + i)));
      } else {
        block = _mm512_mul_ps(scale, integers);
      }
      float* const total = totals + i * ld + v * group_columns;
      _mm512_storeu_ps(total,
                       _mm512_fmadd_ps(block, BroadcastFloat(steps + i), _mm512_loadu_ps(total)));
    }
  }
}

template <int rows>
void Clear(float* totals, std::int64_t ld, std::int64_t cols) {
  for (int i = 0; i < rows; ++i) std::fill_n(totals + i * ld, cols, 0.0f);
}

template <class Format, int rows>
void SkinnyGroup(const FewRowsCall& call, std::int64_t group) {
  const std::int64_t stride = call.row_bytes;
  const auto* const b =
      reinterpret_cast<const std::uint8_t*>(call.b) + group * group_columns * stride;
  const std::uint32_t* a = call.a;
  // Memory latency covers some kilobytes, more than a group of short rows.
  constexpr std::int64_t least = 16 << 10;
  const std::int64_t of_group = group_columns * stride;
  const std::int64_t ahead =
      std::max(of_group, least / std::max<std::int64_t>(of_group, 1) * of_group);
  Prefetches prefetches{b + ahead, reinterpret_cast<const std::uint8_t*>(call.end),
                        group_columns * Format::bytes};
  auto* const totals = reinterpret_cast<float*>(call.sums) + group * group_columns;
  Clear<rows>(totals, call.ld, group_columns);
  ForBlocks<Format>(
      b, stride, group_columns, call.k / weights_per_block,
      [&](const StoredBlock<Format::stored_lanes>& block) __attribute__((always_inline)) {
        prefetches.Next();
        MultiplyBlock<Format, rows, 1>(OneBlock<Format>{block}, a, totals, call.ld);
        a += words_per_block * rows;
      });
}

template <class Format>
void Skinny(const FewRowsCall& call) {
  with_constant<most_rows>(call.rows, [&](auto rows) {
    for (std::int64_t group = 0; group < call.cols / group_columns; ++group) {
      SkinnyGroup<Format, rows>(call, group);
    }
  });
}

template <class Format>
void Pack(const PackCall& call) {
  const auto stride = static_cast<std::int64_t>(call.type->bytes(call.outer));
  const auto* const rows = reinterpret_cast<const std::uint8_t*>(call.from);
  for (int v = 0; v < vectors; ++v) {
    std::uint32_t* to = call.to;
    const auto store = [&](const StoredBlock<Format::stored_lanes>& block)
        __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int g = 0; g < Format::stored_lanes; ++g) {
        _mm512_storeu_si512(to + (v * Format::stored_lanes + g) * group_columns, block.integers[g]);
      }
      auto* const halves = reinterpret_cast<__m256i*>(to + scale_words<Format>);
      _mm256_storeu_si256(halves + v, block.scale);
      if constexpr (Format::has_minimum) _mm256_storeu_si256(halves + vectors + v, block.minimum);
      to += panel_words<Format>;
    };
    const int first = v * group_columns;
    ForBlocks<Format>(rows + first * stride, stride, call.count - first, call.steps, store);
  }
}

// Into L2 what memory delivers meanwhile: 16 KB are 400 ns at 40 GB/s.
constexpr std::int64_t prefetch_words = 4096, words_per_line = 16;

template <class Format, int rows, int groups>
void Tile(const MicroCall& call) {
  auto* const totals = reinterpret_cast<float*>(call.sums);
  if (!call.add) Clear<rows>(totals, call.ld, groups * group_columns);
  const std::uint32_t* a = call.a;
  const std::uint32_t* b = call.b;
  for (std::int64_t left = call.steps; left > 0; --left) {
#pragma GCC unroll 17
    for (std::int64_t word = 0; word < panel_words<Format>; word += words_per_line) {
      _mm_prefetch(reinterpret_cast<const char*>(b + prefetch_words + word), _MM_HINT_T1);
    }
    MultiplyBlock<Format, rows, groups>(PanelBlocks<Format>{b}, a, totals, call.ld);
    a += words_per_block * rows;
    b += panel_words<Format>;
  }
}

template <class Format>
void TileOf(const MicroCall& call) {
  with_constant<mr>(call.rows, [&](auto rows) {
    call.cols <= group_columns ? Tile<Format, rows, 1>(call) : Tile<Format, rows, vectors>(call);
  });
}

// Rotates each `period` bytes: the first `by`, 0 or 2, become the last.
template <int period>
void Rotate(const std::int8_t (&from)[weights_per_block], int by,
            std::uint32_t (&to)[lanes_per_block]) {
  std::int8_t bytes[weights_per_block];
  std::memcpy(bytes, from, sizeof from);
  for (int first = 0; first < weights_per_block && by != 0; first += period) {
    std::memcpy(bytes + first, from + first + 2, period - 2);
    std::memcpy(bytes + first + period - 2, from + first, 2);
  }
  std::memcpy(to, bytes, sizeof to);
}

// Sums of lanes, or the larger ones.
template <bool adds>
__attribute__((always_inline)) inline __m512i Join(__m512i x, __m512i y) {
  return adds ? _mm512_add_epi32(x, y) : _mm512_maskz_max_epu32(all, x, y);
}
// 16 lanes become one.
template <bool adds>
__attribute__((always_inline)) inline std::uint32_t Reduce(__m512i lanes) {
  lanes = Join<adds>(lanes, _mm512_maskz_shuffle_i32x4(all, lanes, lanes, 0x4E));
  lanes = Join<adds>(lanes, _mm512_maskz_shuffle_i32x4(all, lanes, lanes, 0xB1));
  lanes = Join<adds>(lanes, _mm512_maskz_shuffle_epi32(all, lanes, _MM_PERM_BADC));
  lanes = Join<adds>(lanes, _mm512_maskz_shuffle_epi32(all, lanes, _MM_PERM_CDAB));
  return static_cast<std::uint32_t>(
      _mm_cvtsi128_si32(_mm512_maskz_extracti32x4_epi32(0xF, lanes, 0)));
}

// A block of a row becomes 10 words of an A micro-panel. Rounded by adding 1.5·2^23, which leaves
// no bits behind the point.
template <class Format>
void QuantiseBlock(const PackCall& c, std::int64_t row, std::int64_t block, std::uint32_t* to) {
  const auto* const from =
      reinterpret_cast<const float*>(c.from) + row * c.outer + block * weights_per_block;
  const __m512 values[2] = {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)};
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  const QuantisationStep by = quantisation_step(
      Reduce<false>(Join<false>(_mm512_and_si512(_mm512_castps_si512(values[0]), magnitude),
                                _mm512_and_si512(_mm512_castps_si512(values[1]), magnitude))));
  const __m512 shift = _mm512_set1_ps(0x1.8p23f), inverse = _mm512_set1_ps(by.inverse);
  const __mmask16 finite = by.finite ? 0xFFFF : 0;
  __m512i total = _mm512_setzero_si512();
  std::int8_t integers[weights_per_block];
  for (int half = 0; half < 2; ++half) {
    const __m512 rounded = _mm512_add_ps(_mm512_mul_ps(values[half], inverse), shift);
    const __m512i integer =
        _mm512_maskz_sub_epi32(finite, _mm512_castps_si512(rounded), _mm512_castps_si512(shift));
    total = _mm512_add_epi32(total, integer);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(integers + 16 * half),
                     _mm512_maskz_cvtepi32_epi8(all, integer));
  }
  const auto sum = static_cast<std::int32_t>(Reduce<true>(total));
  std::uint32_t lanes[lanes_per_block];
  Rotate<Format::period>(integers, Format::Rotation(block), lanes);
  for (int g = 0; g < lanes_per_block; ++g) to[g * c.width] = lanes[g];
  to[lanes_per_block * c.width] = std::bit_cast<std::uint32_t>(by.step);
  to[(lanes_per_block + 1) * c.width] = Format::has_minimum
                                            ? std::bit_cast<std::uint32_t>(static_cast<float>(sum))
                                            : static_cast<std::uint32_t>(-Format::zero * sum);
}
template <class Format>
void Quantise(const PackCall& c) {
  for (std::int64_t row = 0; row < c.count; ++row) {
    std::uint32_t* to = c.to + row;
    for (std::int64_t block = 0; block < c.k / weights_per_block; ++block) {
      QuantiseBlock<Format>(c, row, block, to);
      to += words_per_block * c.width;
    }
  }
}

}  // namespace
}  // namespace rooflane::gemm
HWY_POP_ATTRIBUTES

namespace rooflane::gemm {
namespace {

template <class Format>
Unit unit_for(bool prepacked) {
  Unit unit{};
  unit.kind = UnitKind::block_vpdpbusd;
  unit.path = "vpdpbusd";
  unit.mr = mr, unit.nr = nr;
  unit.depth = weights_per_block, unit.words = words_per_block;
  unit.k_together = weights_per_block * 8;  // as many blocks as are decoded together
  unit.b_words = panel_words<Format>;
  unit.a_converted = &float32;
  unit.micro = TileOf<Format>;
  unit.pack_a = Quantise<Format>;
  unit.pack_b = Pack<Format>;
  if (prepacked) return unit;  // micro-panels take no more bytes than rows, and fewer instructions
  unit.few = {
      .path = unit.path,
      .limit = most_rows,
      .together = group_columns,
      .shifts_a = false,
      .words = [](std::int64_t rows,
                  std::int64_t k) { return rows * (k / weights_per_block) * words_per_block; },
      .pack = Quantise<Format>,
      .multiply = Skinny<Format>};
  return unit;
}

}  // namespace

Unit avx512_block_unit(const Problem& problem) {
  const DType type = problem.dtype("b_type");
  const bool prepacked = problem.flag("prepack");
  if (type == &q8_0) return unit_for<SignedBytes>(prepacked);
  if (type == &q4_0) return unit_for<Nibbles<ScaleOnly<4>>>(prepacked);
  return unit_for<Nibbles<ScaleAndMinimum>>(prepacked);
}

}  // namespace rooflane::gemm
