// Quantised and short weights as vectors of float32: for each format what a block of 32 elements
// needs at its start, and the vector at a place of the block. A decoded number is rounded once at
// most (q4_1's fused multiply-add). The formats: core/dtype.hpp. Next: hwy_few-inl.h.

#if defined(ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_
#undef ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_
#else
#define ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "core/float16.hpp"
#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
// Elements of a block; in formats without blocks, elements that are decoded at a time.
constexpr std::int64_t kBlock = 32;

HWY_INLINE float HalfToFloat(std::uint16_t bits) {
#if HWY_TARGET <= HWY_AVX2
  const hn::FixedTag<float, 4> few;
  const hn::Rebind<hwy::float16_t, decltype(few)> halves;
  const hn::Rebind<std::uint16_t, decltype(few)> words;
  return hn::GetLane(hn::PromoteTo(few, hn::BitCast(halves, hn::Set(words, bits))));
#else
  Float16 half;
  half.bits = bits;
  return static_cast<float>(half);
#endif
}

// As many bytes as lanes, widened.
template <class Byte>
HWY_INLINE auto Widened(const void* from) {
  const hn::Rebind<std::int32_t, D> words;
  const hn::Rebind<Byte, D> bytes;
  return hn::PromoteTo(words, hn::LoadU(bytes, static_cast<const Byte*>(from)));
}

// Blocks that begin with `heads` float16 numbers: scale, minimum. Begin() takes them as float32.
template <std::int64_t bytes_of_block, std::int64_t heads_of_block>
struct Blocks {
  static constexpr std::int64_t bytes = bytes_of_block, heads = heads_of_block;
};

struct Q8Blocks : Blocks<34, 1> {
  struct Start {
    V scale;
  };
  static HWY_INLINE Start Begin(const float* heads_of_this) {
    return {hn::Set(D(), heads_of_this[0])};
  }
  static HWY_INLINE V At(const Start& start, const std::uint8_t* block, std::int64_t place) {
    return hn::Mul(hn::ConvertTo(D(), Widened<std::int8_t>(block + 2 + place)), start.scale);
  }
};

// Nibbles: byte i holds element i below element i + 16. Where a vector holds 16 numbers, those of a
// block are a table: a permutation, which reads 4 bits of an index, is then all that an element
// takes.
template <std::int64_t heads>
struct NibbleBlocks : Blocks<16 + 2 * heads, heads> {
  struct Start {
    V scale, low;
  };
  static HWY_INLINE Start Begin(V scale, V low) {
#if HWY_TARGET <= HWY_AVX3
    return {hn::MulAdd(hn::Iota(D(), 0.0f), scale, low), low};
#else
    return {scale, low};
#endif
  }
  static HWY_INLINE V At(const Start& start, const std::uint8_t* block, std::int64_t place) {
    const auto both = Widened<std::uint8_t>(block + 2 * heads + place % 16);
    const auto high = hn::ShiftRight<4>(both);
#if HWY_TARGET <= HWY_AVX3
    return V{_mm512_permutexvar_ps(place < 16 ? both.raw : high.raw, start.scale.raw)};
#else
    const auto low = hn::And(both, hn::Set(hn::Rebind<std::int32_t, D>(), 15));
    return hn::MulAdd(hn::ConvertTo(D(), place < 16 ? low : high), start.scale, start.low);
#endif
  }
};

struct Q4Blocks : NibbleBlocks<1> {
  static HWY_INLINE Start Begin(const float* heads_of_this) {
    const V scale = hn::Set(D(), heads_of_this[0]);
#if HWY_TARGET <= HWY_AVX3
    return {hn::Mul(scale, hn::Iota(D(), -8.0f)), scale};
#else
    return {scale, hn::Mul(scale, hn::Set(D(), -8.0f))};
#endif
  }
};
struct Q4WithMinimum : NibbleBlocks<2> {
  static HWY_INLINE Start Begin(const float* heads_of_this) {
    return NibbleBlocks::Begin(hn::Set(D(), heads_of_this[0]), hn::Set(D(), heads_of_this[1]));
  }
};

// Formats without blocks: nothing to begin with.
template <std::int64_t size>
struct PlainElements {
  static constexpr std::int64_t bytes = size * kBlock, heads = 0;
  struct Start {};
  static HWY_INLINE Start Begin(const float*) { return {}; }
};
// Their scale is applied to sums.
struct PlainIntegers : PlainElements<1> {
  static HWY_INLINE V At(Start, const std::uint8_t* block, std::int64_t place) {
    return hn::ConvertTo(D(), Widened<std::int8_t>(block + place));
  }
};
template <class T>
struct ShortFloats : PlainElements<2> {
  static HWY_INLINE V At(PlainElements<2>::Start, const std::uint8_t* block, std::int64_t place) {
    const hn::Rebind<std::uint16_t, D> halves;
    return common::HWY_NAMESPACE::Short<T>::Load(
        D(), halves, reinterpret_cast<const std::uint16_t*>(block) + place);
  }
};
struct Floats : PlainElements<4> {
  static HWY_INLINE V At(Start, const std::uint8_t* block, std::int64_t place) {
    return hn::LoadU(D(), reinterpret_cast<const float*>(block) + place);
  }
};

// Heads of so many blocks are read together, before the blocks.
constexpr std::int64_t kHeads = 16;
template <class Format>
constexpr std::int64_t kBlocksTogether = kHeads / std::max<std::int64_t>(Format::heads, 1);

#if HWY_TARGET <= HWY_AVX3
// Heads of kBlocksTogether blocks: words that are collected from vectors of 32. The last vector
// ends where the blocks end.
template <std::int64_t heads, std::int64_t words>
struct Heads {
  static constexpr std::int64_t all = kHeads / heads * words,
                                last = (kHeads - heads) / heads * words + heads - 1;
  static constexpr std::int64_t Place(std::int64_t i) { return i / heads * words + i % heads; }
  static constexpr std::int64_t First(std::int64_t v) { return std::min(32 * v, all - 32); }
  // Lanes of vector v's heads.
  static constexpr std::uint32_t Here(std::int64_t v) {
    std::uint32_t lanes = 0;
    for (std::int64_t i = 0; i < kHeads; ++i) lanes |= std::uint32_t{Place(i) / 32 == v} << i;
    return lanes;
  }
  template <std::int64_t v>
  static constexpr auto Indices() {
    std::array<std::uint16_t, 32> list{};
    for (std::int64_t i = 0; i < kHeads; ++i) {
      list[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>((Place(i) - First(v)) & 31);
    }
    return list;
  }
  template <std::int64_t v>
  static HWY_INLINE __m512i Collect(const std::uint8_t* from, __m512i found) {
    if constexpr (32 * v > last) {
      return found;
    } else {
      alignas(64) static constexpr auto at = Indices<v>();
      found = _mm512_mask_permutexvar_epi16(found, Here(v), _mm512_load_si512(at.data()),
                                            _mm512_loadu_si512(from + 2 * First(v)));
      return Collect<v + 1>(from, found);
    }
  }
};
#endif

// Heads of blocks that follow one another, kBlocksTogether at most.
template <class Format>
HWY_INLINE void ReadHeads(const std::uint8_t* from, std::int64_t blocks, float (&to)[kHeads]) {
  if constexpr (Format::heads > 0) {
#if HWY_TARGET <= HWY_AVX3
    if (blocks == kBlocksTogether<Format>) {
      const __m512i found = Heads<Format::heads, Format::bytes / 2>::template Collect<0>(
          from, _mm512_setzero_si512());
      _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm512_castsi512_si256(found)));
      return;
    }
#endif
    for (std::int64_t t = 0; t < blocks; ++t, from += Format::bytes) {
      for (std::int64_t h = 0; h < Format::heads; ++h) {
        std::uint16_t bits;
        std::memcpy(&bits, from + 2 * h, sizeof bits);
        to[t * Format::heads + h] = HalfToFloat(bits);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // include guard
