// Horizontal reductions of vectors, long ones of float32, and loads and stores of a row's last,
// partial vector. The maximum here may drop a NaN: softmax and attention need none, because the NaN
// comes back through exp(x - max) into the sum and from there into every element.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_REDUCE_INL_H_
#undef ROOFLANE_KERNELS_COMMON_REDUCE_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_REDUCE_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"

// For lambdas in inner loops: without it GCC 12 leaves what they capture in memory.
#ifndef ROOFLANE_LAMBDA
#define ROOFLANE_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// The sum of a vector's lanes, by halving: log2(lanes) roundings, in an order that does not depend
// on Highway's version, so that a vector and its two halves added up give the same bits.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE vectors::HWY_NAMESPACE::TFromD<D> SumLanes(D d, V v) {
  namespace hn = vectors::HWY_NAMESPACE;
#if HWY_HAVE_SCALABLE || ROOFLANE_SVE || HWY_TARGET == HWY_SCALAR
  return hn::GetLane(hn::SumOfLanes(d, v));
#else
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return SumLanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
}
// Their maximum.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE float MaxLanes(D d, V v) {
  return vectors::HWY_NAMESPACE::GetLane(vectors::HWY_NAMESPACE::MaxOfLanes(d, v));
}

// What a reduction does with two vectors.
struct Plus {
  template <class V>
  HWY_INLINE V operator()(V x, V y) const {
    return vectors::HWY_NAMESPACE::Add(x, y);
  }
};
struct Most {
  template <class V>
  HWY_INLINE V operator()(V x, V y) const {
    return vectors::HWY_NAMESPACE::Max(x, y);
  }
};

#if HWY_TARGET != HWY_SCALAR
// op over a vector's blocks of 128 bits.
template <class D, class V, class Op>
HWY_INLINE auto ReduceBlocks(D /*d*/, V v, Op op) {
  namespace hn = vectors::HWY_NAMESPACE;
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return ReduceBlocks(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  }
}

// Lane i: op over the lanes of v_i, for four vectors of float at once: 12 instructions with 16
// floats, a third as many as four separate reductions.
template <class D, class Op, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE auto FourReduced(D d, V v0, V v1, V v2, V v3, Op op) {
  namespace hn = vectors::HWY_NAMESPACE;
  const V v01 = op(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const V v23 = op(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const hn::RepartitionToWide<D> pairs;
  const auto p01 = hn::BitCast(pairs, v01), p23 = hn::BitCast(pairs, v23);
  // Four results in each block.
  const V blocks = op(hn::BitCast(d, hn::InterleaveLower(pairs, p01, p23)),
                      hn::BitCast(d, hn::InterleaveUpper(pairs, p01, p23)));
  return ReduceBlocks(d, blocks, op);
}
#endif

// to[i] = op over the lanes of v_i, for four vectors of float or double at once.
template <class D, class Op, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void ReduceFour([[maybe_unused]] D d, V v0, V v1, V v2, V v3, [[maybe_unused]] Op op,
                           vectors::HWY_NAMESPACE::TFromD<D>* to) {
  namespace hn = vectors::HWY_NAMESPACE;
#if HWY_TARGET == HWY_SCALAR
  to[0] = hn::GetLane(v0), to[1] = hn::GetLane(v1);
  to[2] = hn::GetLane(v2), to[3] = hn::GetLane(v3);
#else
  using T = hn::TFromD<D>;
  const hn::CappedTag<T, 16 / sizeof(T)> block;
  if constexpr (sizeof(T) == 8) {
    const V v01 = op(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
    const V v23 = op(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
    hn::StoreU(ReduceBlocks(d, v01, op), block, to);
    hn::StoreU(ReduceBlocks(d, v23, op), block, to + 2);
  } else {
    hn::StoreU(FourReduced(d, v0, v1, v2, v3, op), block, to);
  }
#endif
}

// How much of a vector a row fills: all lanes, or at its end the first `count` < Lanes(d) of them.
// Two types, so that code written once for both has no masks and no branches on whole vectors.
struct Whole {};
struct Part {
  std::size_t count;
};

// Vectors that split into halves, quarters…, in at most one load or store of each: where masked
// ones may touch what they leave out (AVX2; SSE has none). Through an array on the stack, a wide
// load waits for the narrow stores before it, some 100 cycles on a Zen 5.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define ROOFLANE_HALVES 1
#else
#define ROOFLANE_HALVES 0
#endif

#if ROOFLANE_HALVES
// The first `count` <= Lanes(d) lanes from p, 0 in the others.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V LoadHalves(D d, const float* p, std::size_t count) {
  namespace hn = vectors::HWY_NAMESPACE;
  if constexpr (hn::MaxLanes(d) == 1) {
    return count == 0 ? hn::Zero(d) : hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    constexpr std::size_t lanes = hn::MaxLanes(half);
    if (count < lanes) return hn::ZeroExtendVector(d, LoadHalves(half, p, count));
    if (count == lanes) return hn::ZeroExtendVector(d, hn::LoadU(half, p));
    return hn::Combine(d, LoadHalves(half, p + lanes, count - lanes), hn::LoadU(half, p));
  }
}

// The first `count` <= Lanes(d) lanes to p.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void StoreHalves(V v, D d, float* p, std::size_t count) {
  namespace hn = vectors::HWY_NAMESPACE;
  if constexpr (hn::MaxLanes(d) == 1) {
    if (count != 0) hn::StoreU(v, d, p);
  } else {
    const hn::Half<D> half;
    constexpr std::size_t lanes = hn::MaxLanes(half);
    if (count < lanes) return StoreHalves(hn::LowerHalf(half, v), half, p, count);
    hn::StoreU(hn::LowerHalf(half, v), half, p);
    StoreHalves(hn::UpperHalf(half, v), half, p + lanes, count - lanes);
  }
}
#endif

// v, and 0 in lanes beyond a part.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Filled(D /*d*/, V v, Whole) {
  return v;
}
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Filled(D d, V v, Part part) {
  return vectors::HWY_NAMESPACE::IfThenElseZero(vectors::HWY_NAMESPACE::FirstN(d, part.count), v);
}

// The elements at p, and 0 in lanes beyond a part. Touches only what it fills.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V LoadRow(D d, const float* p, Whole) {
  return vectors::HWY_NAMESPACE::LoadU(d, p);
}
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V LoadRow(D d, const float* p, Part part) {
  namespace hn = vectors::HWY_NAMESPACE;
#if !HWY_MEM_OPS_MIGHT_FAULT
  return hn::MaskedLoad(hn::FirstN(d, part.count), d, p);
#elif ROOFLANE_HALVES
  return LoadHalves(d, p, part.count);
#else
  HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
  for (std::size_t i = 0; i < part.count; ++i) lanes[i] = p[i];
  return hn::Load(d, lanes);
#endif
}

// The same, and `rest` in lanes beyond a part.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V LoadRow(D d, const float* p, Whole, V /*rest*/) {
  return vectors::HWY_NAMESPACE::LoadU(d, p);
}
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V LoadRow(D d, const float* p, Part part, V rest) {
  namespace hn = vectors::HWY_NAMESPACE;
  return hn::IfThenElse(hn::FirstN(d, part.count), LoadRow(d, p, part), rest);
}

// v to p. Touches only what it fills.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void StoreRow(V v, D d, float* p, Whole) {
  vectors::HWY_NAMESPACE::StoreU(v, d, p);
}
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void StoreRow(V v, D d, float* p, Part part) {
#if !HWY_MEM_OPS_MIGHT_FAULT
  vectors::HWY_NAMESPACE::BlendedStore(v, vectors::HWY_NAMESPACE::FirstN(d, part.count), d, p);
#elif ROOFLANE_HALVES
  StoreHalves(v, d, p, part.count);
#else
  HWY_ALIGN float lanes[vectors::HWY_NAMESPACE::MaxLanes(d)];
  vectors::HWY_NAMESPACE::Store(v, d, lanes);
  for (std::size_t i = 0; i < part.count; ++i) p[i] = lanes[i];
#endif
}
#undef ROOFLANE_HALVES

// A sum with an error that does not grow with its length: |error| <= (2u + O(n·u²))·Σ|v|. Each lane
// carries the rounding error of an addition into the next one (Kahan 1965). An addition is four
// dependent operations, so add sums of a few vectors.
template <class D>
class LongSum {
 public:
  using V = vectors::HWY_NAMESPACE::Vec<D>;
  HWY_INLINE explicit LongSum(D d)
      : sum_(vectors::HWY_NAMESPACE::Zero(d)), excess_(vectors::HWY_NAMESPACE::Zero(d)) {}

  HWY_INLINE void Add(V v) {
    namespace hn = vectors::HWY_NAMESPACE;
    const V corrected = hn::Sub(v, excess_);
    const V sum = hn::Add(sum_, corrected);
    excess_ = hn::Sub(hn::Sub(sum, sum_), corrected);
    sum_ = sum;
  }

  // Each lane's own sum.
  HWY_INLINE V PerLane() const { return vectors::HWY_NAMESPACE::Sub(sum_, excess_); }

  // All lanes together. NaN when an infinity or a NaN was added.
  HWY_INLINE double Total(D d) const {
    return static_cast<double>(SumLanes(d, sum_)) - static_cast<double>(SumLanes(d, excess_));
  }

 private:
  V sum_;
  V excess_;
};

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
