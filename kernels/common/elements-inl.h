// Stored elements (float, Float16, BFloat16) as vectors of float32 in registers, and a walk over
// neighbouring ones that writes each once, plainly or past the caches. The elementwise kernels say
// what a vector's value is.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_ELEMENTS_INL_H_
#undef ROOFLANE_KERNELS_COMMON_ELEMENTS_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_ELEMENTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// The elements at p; 0 in lanes beyond a part. Touches only what it fills.
template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const float* p, Whole whole) {
  return LoadRow(d, p, whole);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const float* p, Part part) {
  return LoadRow(d, p, part);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadElements(D d, const T* p, Whole /*fill*/) {
  const hn::Rebind<std::uint16_t, D> d16;
  return Short<T>::Load(d, d16, reinterpret_cast<const std::uint16_t*>(p));
}
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadElements(D d, const T* p, Part part) {
  const hn::Rebind<std::uint16_t, D> d16;
  HWY_ALIGN std::uint16_t bits[hn::MaxLanes(d)] = {};
  std::memcpy(bits, p, part.count * sizeof(T));
  return Short<T>::Load(d, d16, bits);
}

// v to p, rounded to nearest, ties to even.
template <class D>
HWY_INLINE void StoreElements(hn::Vec<D> v, D d, float* p, Whole whole) {
  StoreRow(v, d, p, whole);
}
template <class D>
HWY_INLINE void StoreElements(hn::Vec<D> v, D d, float* p, Part part) {
  StoreRow(v, d, p, part);
}
template <class D, class T>
HWY_INLINE void StoreElements(hn::Vec<D> v, D d, T* p, Whole /*fill*/) {
  const hn::Rebind<std::uint16_t, D> d16;
  hn::StoreU(Short<T>::Rounded(d, d16, v), d16, reinterpret_cast<std::uint16_t*>(p));
}
template <class D, class T>
HWY_INLINE void StoreElements(hn::Vec<D> v, D d, T* p, Part part) {
  const hn::Rebind<std::uint16_t, D> d16;
  HWY_ALIGN std::uint16_t bits[hn::MaxLanes(d)];
  hn::StoreU(Short<T>::Rounded(d, d16, v), d16, bits);
  std::memcpy(p, bits, part.count * sizeof(T));
}

// y = value(i, fill) for all i < n, where the value is a vector of elements from i on and fill is
// Whole, or Part at the ends. It may be read from y at i itself. kStream: non-temporal stores; call
// hwy::FlushStream() before others read y.
template <bool kStream, class D, class T, class Value>
HWY_INLINE void WriteElements(D d, T* y, std::size_t n, Value value) {
  if constexpr (std::is_same_v<T, float>) {
    WriteRow<kStream>(d, y, n, value);
  } else {
    const std::size_t lanes = hn::Lanes(d);
    std::size_t i = 0;
    const auto up_to = [&](std::size_t end) ROOFLANE_LAMBDA {
      for (; i + lanes <= end; i += lanes) StoreElements(value(i, Whole()), d, y + i, Whole());
      if (i < end) StoreElements(value(i, Part{end - i}), d, y + i, Part{end - i});
      i = end;
    };
#if HWY_TARGET != HWY_SCALAR  // which has no vectors to stream
    if constexpr (kStream) {
      // Two vectors of floats make one of 16-bit elements, which starts at aligned addresses.
      const hn::ScalableTag<std::uint16_t> whole;
      const hn::Rebind<std::uint16_t, D> d16;
      auto* bits = reinterpret_cast<std::uint16_t*>(y);
      const std::size_t past = reinterpret_cast<std::uintptr_t>(y) / sizeof(T) % (2 * lanes);
      if (past != 0) up_to(std::min(n, 2 * lanes - past));
      for (; i + 2 * lanes <= n; i += 2 * lanes) {
        const auto low = Short<T>::Rounded(d, d16, value(i, Whole()));
        const auto high = Short<T>::Rounded(d, d16, value(i + lanes, Whole()));
        hn::Stream(hn::Combine(whole, high, low), whole, bits + i);
      }
    }
#endif
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      const auto v0 = value(i, Whole());
      const auto v1 = value(i + lanes, Whole());
      const auto v2 = value(i + 2 * lanes, Whole());
      const auto v3 = value(i + 3 * lanes, Whole());
      StoreElements(v0, d, y + i, Whole());
      StoreElements(v1, d, y + i + lanes, Whole());
      StoreElements(v2, d, y + i + 2 * lanes, Whole());
      StoreElements(v3, d, y + i + 3 * lanes, Whole());
    }
    up_to(n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
