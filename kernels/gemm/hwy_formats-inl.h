// Quantised and short weights as vectors of float32: for each format what a block of 32 elements
// needs at its start, and the vector at a place of the block. A decoded number is rounded once at
// most (q4_1's fused multiply-add). The formats: core/dtype.hpp.

#if defined(ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_
#undef ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_
#else
#define ROOFLANE_KERNELS_GEMM_HWY_FORMATS_INL_H_
#endif

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
// Elements of a block; of formats without blocks, of what is decoded at a time.
constexpr std::int64_t kBlock = 32;

// A float16 in every lane.
HWY_INLINE V HalfInAllLanes(const std::uint8_t* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
#if HWY_TARGET <= HWY_AVX2
  const hn::FixedTag<float, 4> few;
  const hn::Rebind<hwy::float16_t, decltype(few)> halves;
  const hn::Rebind<std::uint16_t, decltype(few)> words;
  return hn::Set(D(), hn::GetLane(hn::PromoteTo(few, hn::BitCast(halves, hn::Set(words, bits)))));
#else
  Float16 half;
  half.bits = bits;
  return hn::Set(D(), static_cast<float>(half));
#endif
}

// As many bytes as lanes, widened.
template <class Byte>
HWY_INLINE auto Widened(const void* from) {
  const hn::Rebind<std::int32_t, D> words;
  const hn::Rebind<Byte, D> bytes;
  return hn::PromoteTo(words, hn::LoadU(bytes, static_cast<const Byte*>(from)));
}

struct Q8Blocks {
  static constexpr std::int64_t bytes = 34;
  struct Start {
    V scale;
  };
  static HWY_INLINE Start Begin(const std::uint8_t* block) { return {HalfInAllLanes(block)}; }
  static HWY_INLINE V At(const Start& start, const std::uint8_t* block, std::int64_t place) {
    return hn::Mul(hn::ConvertTo(D(), Widened<std::int8_t>(block + 2 + place)), start.scale);
  }
};

// Nibbles: byte i holds element i below element i + 16.
HWY_INLINE auto Nibbles(const std::uint8_t* bytes, std::int64_t place) {
  const hn::Rebind<std::int32_t, D> words;
  const auto both = Widened<std::uint8_t>(bytes + place % 16);
  return place < 16 ? hn::And(both, hn::Set(words, 15)) : hn::ShiftRight<4>(both);
}

// The 16 numbers of a block of nibbles as a table, where a vector holds them: a permutation is then
// all that an element takes.
template <std::int64_t bytes_of_block, std::int64_t head>
struct NibbleBlocks {
  static constexpr std::int64_t bytes = bytes_of_block;
  struct Start {
    V scale, low;
  };
#if HWY_TARGET <= HWY_AVX3
  static HWY_INLINE Start Tabled(V scale, V low) {
    return {hn::MulAdd(hn::Iota(D(), 0.0f), scale, low), low};
  }
  static HWY_INLINE V At(const Start& start, const std::uint8_t* block, std::int64_t place) {
    return hn::TableLookupLanes(start.scale, hn::IndicesFromVec(D(), Nibbles(block + head, place)));
  }
#else
  static HWY_INLINE Start Tabled(V scale, V low) { return {scale, low}; }
  static HWY_INLINE V At(const Start& start, const std::uint8_t* block, std::int64_t place) {
    const V number = hn::ConvertTo(D(), Nibbles(block + head, place));
    return hn::MulAdd(number, start.scale, start.low);
  }
#endif
};

struct Q4Blocks : NibbleBlocks<18, 2> {
  static HWY_INLINE Start Begin(const std::uint8_t* block) {
    const V scale = HalfInAllLanes(block);
    return Tabled(scale, hn::Mul(scale, hn::Set(D(), -8.0f)));
  }
};
struct Q4WithMinimum : NibbleBlocks<20, 4> {
  static HWY_INLINE Start Begin(const std::uint8_t* block) {
    return Tabled(HalfInAllLanes(block), HalfInAllLanes(block + 2));
  }
};

// Formats without blocks: nothing to begin with.
template <std::int64_t size>
struct PlainElements {
  static constexpr std::int64_t bytes = size * kBlock;
  struct Start {};
  static HWY_INLINE Start Begin(const std::uint8_t*) { return {}; }
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

// body(Format()) for a number format of b or a.
template <class Body>
HWY_INLINE void WithFormat(DType type, const Body& body) {
  if (type == &q8_0) return body(Q8Blocks());
  if (type == &q4_0) return body(Q4Blocks());
  if (type == &q4_1) return body(Q4WithMinimum());
  if (type == &int8_per_channel) return body(PlainIntegers());
  if (type == &float16) return body(ShortFloats<Float16>());
  if (type == &bfloat16) return body(ShortFloats<BFloat16>());
  body(Floats());
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // include guard
