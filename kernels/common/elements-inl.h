// Stored elements (float, Float16, BFloat16) as vectors of float32 in registers, and a walk over
// neighbouring ones that writes each once, plainly or past the caches. The kernels say what a
// vector's value is.

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
#include "kernels/common/vectors-inl.h"

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
#if !HWY_MEM_OPS_MIGHT_FAULT
  const auto* from = reinterpret_cast<const std::uint16_t*>(p);
  return Short<T>::FromBits(d, hn::MaskedLoad(hn::FirstN(d16, part.count), d16, from));
#else
  HWY_ALIGN std::uint16_t bits[hn::MaxLanes(d)] = {};
  std::memcpy(bits, p, part.count * sizeof(T));
  return Short<T>::Load(d, d16, bits);
#endif
}

// The same, and `rest` in lanes beyond a part.
template <class D, class Row>
HWY_INLINE hn::Vec<D> LoadElements(D d, Row p, Whole whole, hn::Vec<D> /*rest*/) {
  return LoadElements(d, p, whole);
}
template <class D, class Row>
HWY_INLINE hn::Vec<D> LoadElements(D d, Row p, Part part, hn::Vec<D> rest) {
  return hn::IfThenElse(hn::FirstN(d, part.count), LoadElements(d, p, part), rest);
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
#if !HWY_MEM_OPS_MIGHT_FAULT
  hn::BlendedStore(Short<T>::Rounded(d, d16, v), hn::FirstN(d16, part.count), d16,
                   reinterpret_cast<std::uint16_t*>(p));
#else
  HWY_ALIGN std::uint16_t bits[hn::MaxLanes(d)];
  hn::StoreU(Short<T>::Rounded(d, d16, v), d16, bits);
  std::memcpy(p, bits, part.count * sizeof(T));
#endif
}

// How many vectors of float32 fill one vector of T. (HWY_SCALAR has one lane of each.)
template <class T>
constexpr std::size_t VectorsOfFloats() {
  constexpr std::size_t wide = sizeof(float);
  return HWY_TARGET == HWY_SCALAR ? 1 : wide / sizeof(T);
}
// Elements of T in one vector: what is streamed at a time, to where its address is a multiple.
template <class D, class T>
HWY_INLINE std::size_t StreamedLanes() {
  return VectorsOfFloats<T>() * hn::Lanes(D());
}
// Elements of the vector that y lies in which come before y.
template <class D, class T>
HWY_INLINE std::size_t PastAligned(const T* y) {
  return reinterpret_cast<std::uintptr_t>(y) / sizeof(T) % StreamedLanes<D, T>();
}

// The value of elements from i on, as so many vectors of float32, to y[i]; kStream: past the
// caches, where y[i] is aligned.
template <bool kStream, std::size_t kVectors, class D, class T, class Value>
HWY_INLINE void StoreVectors(D d, T* y, std::size_t i, Value value) {
  const std::size_t lanes = hn::Lanes(d);
  const auto store = [](auto v, auto tag, auto* to) ROOFLANE_LAMBDA {
    if constexpr (kStream) {
      hn::Stream(v, tag, to);
    } else {
      hn::StoreU(v, tag, to);
    }
  };
  if constexpr (std::is_same_v<T, float> && kVectors == 4) {
    const auto v0 = value(i, Whole());
    const auto v1 = value(i + lanes, Whole());
    const auto v2 = value(i + 2 * lanes, Whole());
    const auto v3 = value(i + 3 * lanes, Whole());
    store(v0, d, y + i);
    store(v1, d, y + i + lanes);
    store(v2, d, y + i + 2 * lanes);
    store(v3, d, y + i + 3 * lanes);
  } else if constexpr (kVectors > VectorsOfFloats<T>()) {
    StoreVectors<kStream, kVectors / 2>(d, y, i, value);
    StoreVectors<kStream, kVectors / 2>(d, y, i + kVectors / 2 * lanes, value);
  } else if constexpr (std::is_same_v<T, float>) {
    store(value(i, Whole()), d, y + i);
  } else {
#if HWY_TARGET == HWY_SCALAR
    StoreElements(value(i, Whole()), d, y + i, Whole());
#else
    const hn::Repartition<std::uint16_t, D> d16;
    const auto low = value(i, Whole()), high = value(i + lanes, Whole());
    store(Short<T>::RoundedTwo(d, low, high), d16, reinterpret_cast<std::uint16_t*>(y) + i);
#endif
  }
}

// y = value(i, fill) for all i < n, where the value is a vector of elements from i on and fill is
// Whole, or Part at the ends. It may be read from y at i itself. kStream: non-temporal stores,
// which spare the read of y that an ordinary store to uncached memory costs; call
// hwy::FlushStream() before others read y.
template <bool kStream, class D, class T, class Value>
HWY_INLINE void WriteElements(D d, T* y, std::size_t n, Value value) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  const auto up_to = [&](std::size_t end) ROOFLANE_LAMBDA {
    for (; i + lanes <= end; i += lanes) StoreElements(value(i, Whole()), d, y + i, Whole());
    if (i < end) StoreElements(value(i, Part{end - i}), d, y + i, Part{end - i});
    i = end;
  };
  // Whole vectors start at aligned addresses: streaming demands it, and stores of float32 that
  // straddle cache lines cost more than the partial vector at the front once a row has 16 vectors.
  const std::size_t past = PastAligned<D>(y);
  if (past != 0 && (kStream || (std::is_same_v<T, float> && n >= 16 * lanes))) {
    up_to(std::min(n, StreamedLanes<D, T>() - past));
  }
  for (; i + 4 * lanes <= n; i += 4 * lanes) StoreVectors<kStream, 4>(d, y, i, value);
  constexpr std::size_t one = VectorsOfFloats<T>();
  for (; i + one * lanes <= n; i += one * lanes) StoreVectors<kStream, one>(d, y, i, value);
  up_to(n);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
