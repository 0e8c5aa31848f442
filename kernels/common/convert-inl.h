// Vectors of float32 from float16 and bfloat16 and back, rounding to nearest, ties to even, by
// integer operations that every target has: Highway 1.0 truncates to bfloat16, and to float16
// where the CPU has no instruction for it.

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

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Element type by tag: the vector functions below are chosen by it.
template <class T>
struct Short;

template <>
struct Short<BFloat16> {
  // The upper half of a float32.
  template <class DU, class VU = hn::Vec<DU>>
  static HWY_INLINE VU ToFloatBits(DU /*d*/, VU bits) {
    return hn::ShiftLeft<16>(bits);
  }
  template <class DU, class VU = hn::Vec<DU>>
  static HWY_INLINE VU FromFloatBits(DU d, VU bits) {
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const VU rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFu)));
    // Adding could carry a NaN into the sign: its quiet bit is set instead.
    const VU magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
    const hn::RebindToSigned<DU> di;
    const auto is_nan = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7F800000));
    const VU quiet = hn::Or(bits, hn::Set(d, 0x00400000u));
    return hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(d, is_nan), quiet, rounded));
  }
};

template <>
struct Short<Float16> {
  // Exponent and fraction move to their places in a float32, whose bias is larger by 112: a product
  // with 2^112 adds that, also to subnormals, and is exact. An exponent of all ones stays one.
  template <class DU, class VU = hn::Vec<DU>>
  static HWY_INLINE VU ToFloatBits(DU d, VU bits) {
    const hn::RebindToFloat<DU> df;
    const hn::RebindToSigned<DU> di;
    const VU magnitude = hn::And(bits, hn::Set(d, 0x7FFFu));
    const VU sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
    const VU moved = hn::ShiftLeft<13>(magnitude);
    const VU value = hn::BitCast(d, hn::Mul(hn::BitCast(df, moved), hn::Set(df, 0x1p112f)));
    const auto special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF));
    const VU infinite = hn::Or(moved, hn::Set(d, 0x7F800000u));
    return hn::Or(sign, hn::IfThenElse(hn::RebindMask(d, special), infinite, value));
  }
  template <class DU, class VU = hn::Vec<DU>>
  static HWY_INLINE VU FromFloatBits(DU d, VU bits) {
    const hn::RebindToFloat<DU> df;
    const hn::RebindToSigned<DU> di;
    const VU magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFu));
    const VU sign = hn::ShiftRight<16>(hn::Sub(bits, magnitude));
    // Below 2^-14: added to 0.5, whose last bit is worth 2^-24 like a subnormal's, the sum rounds.
    const VU half = hn::Set(d, 0x3F000000u);
    const VU small =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, half))), half);
    const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1u));
    const VU rounded = hn::ShiftRight<13>(
        hn::Add(hn::Sub(magnitude, hn::Set(d, 112u << 23)), hn::Add(odd, hn::Set(d, 0xFFFu))));
    const auto is_small = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 113 << 23));
    const auto is_large = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x477FEFFF));  // 65519.996
    const auto is_nan = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7F800000));
    VU result = hn::IfThenElse(hn::RebindMask(d, is_small), small, rounded);
    result = hn::IfThenElse(hn::RebindMask(d, is_large), hn::Set(d, 0x7C00u), result);
    result = hn::IfThenElse(hn::RebindMask(d, is_nan), hn::Set(d, 0x7E00u), result);
    return hn::Or(sign, result);
  }
};

// to[i] = from[i] for n elements.
template <class T>
void Widen(const T* from, float* to, std::size_t n) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<std::uint16_t, decltype(df)> d16;
  const std::size_t lanes = hn::Lanes(df);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto wide = hn::PromoteTo(du, hn::LoadU(d16, bits + i));
    hn::StoreU(hn::BitCast(df, Short<T>::ToFloatBits(du, wide)), df, to + i);
  }
  std::copy(from + i, from + n, to + i);
}

// The same back; `stream`: past the caches, in whole vectors of `to` from where they are aligned.
template <class T>
void Narrow(const float* from, T* to, std::size_t n, [[maybe_unused]] bool stream) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<std::uint16_t, decltype(df)> d16;
  const std::size_t lanes = hn::Lanes(df);
  auto* bits = reinterpret_cast<std::uint16_t*>(to);
  const auto vector = [&](std::size_t i) HWY_ATTR {
    const auto rounded = Short<T>::FromFloatBits(du, hn::BitCast(du, hn::LoadU(df, from + i)));
    return hn::DemoteTo(d16, hn::BitCast(di, rounded));  // all below 2^16
  };
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // which has no vectors to stream
  if (stream) {
    const hn::ScalableTag<std::uint16_t> whole;
    const std::size_t bytes = hn::Lanes(whole) * sizeof(std::uint16_t);
    for (; i < n && reinterpret_cast<std::uintptr_t>(to + i) % bytes != 0; ++i) to[i] = T(from[i]);
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      hn::Stream(hn::Combine(whole, vector(i + lanes), vector(i)), whole, bits + i);
    }
  }
#endif
  for (; i + lanes <= n; i += lanes) hn::StoreU(vector(i), d16, bits + i);
  std::transform(from + i, from + n, to + i, [](float value) { return T(value); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // include guard
