// Vectors of float32 from float16 and bfloat16 and back, rounding to nearest, ties to even. By
// integer operations that every target has where Highway 1.0 would truncate: to bfloat16, and to
// float16 on targets without an instruction for it.

#if defined(ROOFLANE_KERNELS_COMMON_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_CONVERT_INL_H_
#undef ROOFLANE_KERNELS_COMMON_CONVERT_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_CONVERT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/float16.hpp"
#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;

// Vectors by the type of the stored elements: `D16` holds as many 16-bit lanes as `DF` floats.
template <class T>
struct Short;

template <>
struct Short<BFloat16> {
  // The upper half of a float32.
  template <class DF, class V16>
  static HWY_INLINE hn::Vec<DF> FromBits(DF df, V16 bits) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    // One shuffle for what widens and what shifts, which some cores do with the same units.
    if constexpr (hn::MaxLanes(DF()) == 16) {
      const hn::ScalableTag<std::uint16_t> d16;
      return hn::Vec<DF>{_mm512_castsi512_ps(
          _mm512_maskz_permutexvar_epi16(__mmask32{0xAAAAAAAA}, hn::Load(d16, kToUpperHalves).raw,
                                         _mm512_castsi256_si512(bits.raw)))};
    }
#endif
    const hn::RebindToUnsigned<DF> du;
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
  template <class DF, class D16>
  static HWY_INLINE hn::Vec<DF> Load(DF df, D16 d16, const std::uint16_t* from) {
    return FromBits(df, hn::LoadU(d16, from));
  }
  template <class DF, class D16>
  static HWY_INLINE hn::Vec<D16> Rounded(DF df, D16 d16, hn::Vec<DF> value) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
    // Adding could carry a NaN into the sign.
    const auto quiet = hn::BitCast(df, hn::Set(du, 0x7FC00000u));
    const auto kept =
        hn::BitCast(du, hn::IfThenElse(hn::IsNaN(value), quiet, hn::BitCast(df, rounded)));
#if HWY_TARGET == HWY_SCALAR
    const hn::RebindToSigned<DF> di;
    return hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(kept)));
#else
    const hn::Repartition<std::uint16_t, DF> whole;
    return hn::LowerHalf(d16,
                         hn::ConcatOdd(whole, hn::BitCast(whole, kept), hn::BitCast(whole, kept)));
#endif
  }
#if HWY_TARGET != HWY_SCALAR
  // Two vectors into one, on lanes of 16 bits. They come from elements of this type: the lower half
  // of a NaN is 0, and never carries.
  template <class DF>
  static HWY_INLINE auto RoundedTwo(DF /*df*/, hn::Vec<DF> low, hn::Vec<DF> high) {
    const hn::Repartition<std::uint16_t, DF> d16;
    const auto first = hn::BitCast(d16, low), second = hn::BitCast(d16, high);
    const auto upper = hn::ConcatOdd(d16, second, first);
    const auto lower = hn::ConcatEven(d16, second, first);
    // More than half of the last place, or half of it and that odd.
    const auto one = hn::Set(d16, 1);
    const auto above = hn::SaturatedAdd(lower, hn::And(upper, one));
    return hn::IfThenElse(hn::Gt(above, hn::Set(d16, 0x8000)), hn::Add(upper, one), upper);
  }
#endif

 private:
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  // Lane 2i + 1 from lane i.
  alignas(64) static constexpr std::uint16_t kToUpperHalves[32] = {
      0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
      0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
#endif
};

#if HWY_TARGET <= HWY_AVX2  // AVX2 and better: they have F16C, which rounds
template <>
struct Short<Float16> {
  template <class DF, class V16>
  static HWY_INLINE hn::Vec<DF> FromBits(DF df, V16 bits) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(df, hn::BitCast(dh, bits));
  }
  template <class DF, class D16>
  static HWY_INLINE hn::Vec<DF> Load(DF df, D16 d16, const std::uint16_t* from) {
    return FromBits(df, hn::LoadU(d16, from));
  }
  template <class DF, class D16>
  static HWY_INLINE hn::Vec<D16> Rounded(DF, D16 d16, hn::Vec<DF> value) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::BitCast(d16, hn::DemoteTo(dh, value));
  }
#if HWY_TARGET != HWY_SCALAR
  template <class DF>
  static HWY_INLINE auto RoundedTwo(DF df, hn::Vec<DF> low, hn::Vec<DF> high) {
    const hn::Rebind<std::uint16_t, DF> half;
    const hn::Repartition<std::uint16_t, DF> d16;
    return hn::Combine(d16, Rounded(df, half, high), Rounded(df, half, low));
  }
#endif
};
#else
template <>
struct Short<Float16> {
  // Exponent and fraction move to their places in a float32. Its bias is larger by 112: a product
  // with 2^112 adds that, also to subnormals, and is exact. An exponent of all ones stays one.
  template <class DF, class D16>
  static HWY_INLINE hn::Vec<DF> Load(DF df, D16 d16, const std::uint16_t* from) {
    return FromBits(df, hn::LoadU(d16, from));
  }
  template <class DF, class V16>
  static HWY_INLINE hn::Vec<DF> FromBits(DF df, V16 from) {
    const hn::RebindToUnsigned<DF> du;
    const hn::RebindToSigned<DF> di;
    const auto bits = hn::PromoteTo(du, from);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
    const auto sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
    const auto moved = hn::ShiftLeft<13>(magnitude);
    const auto value = hn::BitCast(du, hn::Mul(hn::BitCast(df, moved), hn::Set(df, 0x1p112f)));
    const auto special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF));
    const auto infinite = hn::Or(moved, hn::Set(du, 0x7F800000u));
    return hn::BitCast(df,
                       hn::Or(sign, hn::IfThenElse(hn::RebindMask(du, special), infinite, value)));
  }
  template <class DF, class D16>
  static HWY_INLINE hn::Vec<D16> Rounded(DF df, D16 d16, hn::Vec<DF> value) {
    const hn::RebindToUnsigned<DF> du;
    const hn::RebindToSigned<DF> di;
    const auto bits = hn::BitCast(du, value);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
    const auto sign = hn::ShiftRight<16>(hn::Sub(bits, magnitude));
    // Below 2^-14 the sum with 0.5 rounds: the last bit of 0.5 is worth 2^-24, like a subnormal's.
    const auto half = hn::Set(du, 0x3F000000u);
    const auto small =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, half))), half);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<13>(
        hn::Add(hn::Sub(magnitude, hn::Set(du, 112u << 23)), hn::Add(odd, hn::Set(du, 0xFFFu))));
    const auto is_small = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 113 << 23));
    const auto is_large = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x477FEFFF));  // 65519.996
    const auto is_nan = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7F800000));
    auto result = hn::IfThenElse(hn::RebindMask(du, is_small), small, rounded);
    result = hn::IfThenElse(hn::RebindMask(du, is_large), hn::Set(du, 0x7C00u), result);
    result = hn::IfThenElse(hn::RebindMask(du, is_nan), hn::Set(du, 0x7E00u), result);
    return hn::DemoteTo(d16, hn::BitCast(di, hn::Or(sign, result)));  // all below 2^16
  }
#if HWY_TARGET != HWY_SCALAR
  template <class DF>
  static HWY_INLINE auto RoundedTwo(DF df, hn::Vec<DF> low, hn::Vec<DF> high) {
    const hn::Rebind<std::uint16_t, DF> half;
    const hn::Repartition<std::uint16_t, DF> d16;
    return hn::Combine(d16, Rounded(df, half, high), Rounded(df, half, low));
  }
#endif
};
#endif

// to[i] = from[i] for n elements. The last vector overlaps the one before.
template <class T>
void Widen(const T* from, float* to, std::size_t n) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<std::uint16_t, decltype(df)> d16;
  const std::size_t lanes = hn::Lanes(df);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
  if (n < lanes) {
    std::copy(from, from + n, to);
    return;
  }
  const auto convert = [&](std::size_t i)
                           HWY_ATTR { hn::StoreU(Short<T>::Load(df, d16, bits + i), df, to + i); };
  for (std::size_t i = 0; i + lanes <= n; i += lanes) convert(i);
  convert(n - lanes);
}

// The same back.
template <class T>
void Narrow(const float* from, T* to, std::size_t n) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<std::uint16_t, decltype(df)> d16;
  const std::size_t lanes = hn::Lanes(df);
  auto* bits = reinterpret_cast<std::uint16_t*>(to);
  if (n < lanes) {
    // One by one the conversion takes ten times as long.
    float values[hn::MaxLanes(df)] = {};
    std::uint16_t rounded[hn::MaxLanes(df)];
    std::copy_n(from, n, values);
    hn::StoreU(Short<T>::Rounded(df, d16, hn::LoadU(df, values)), d16, rounded);
    std::copy_n(rounded, n, bits);
    return;
  }
  const auto convert = [&](std::size_t i) HWY_ATTR {
    hn::StoreU(Short<T>::Rounded(df, d16, hn::LoadU(df, from + i)), d16, bits + i);
  };
  for (std::size_t i = 0; i + lanes <= n; i += lanes) convert(i);
  convert(n - lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // include guard
