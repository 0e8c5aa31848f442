// Walks over one contiguous row of float32: writing every element once, plainly or past the caches,
// and summing in groups of vectors. The row kernels say what a vector's value is.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_ROW_INL_H_
#undef ROOFLANE_KERNELS_COMMON_ROW_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_ROW_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// The greatest e <= end at which y + e is aligned to a vector (0 when there is none), or `end`
// itself when it is the row's: pieces of a row that end there leave the next one aligned.
template <class D>
HWY_INLINE std::size_t AlignedEnd(D d, const float* y, std::size_t end, std::size_t n) {
  if (end >= n) return n;
  const std::size_t past =
      reinterpret_cast<std::uintptr_t>(y + end) / sizeof(float) % hwy::HWY_NAMESPACE::Lanes(d);
  return end > past ? end - past : 0;
}

// y = value(i, fill) for all i < n, where the value is a vector of elements from i on and fill is
// Whole, or Part at the ends of the row. It may be read from y at i itself. kStream: non-temporal
// stores, which spare the read of y that an ordinary store to uncached memory costs; call
// hwy::FlushStream() before others read y.
template <bool kStream, class D, class Value>
HWY_INLINE void WriteRow(D d, float* y, std::size_t n, Value value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  // Whole vectors start at aligned addresses: streaming demands it, and stores that straddle cache
  // lines cost more than the partial vector at the front once a row has 16 vectors.
  const std::size_t past = reinterpret_cast<std::uintptr_t>(y) / sizeof(float) % lanes;
  if (past != 0 && (kStream || n >= 16 * lanes)) {
    i = std::min(n, lanes - past);
    StoreRow(value(std::size_t{0}, Part{i}), d, y, Part{i});
  }
  const auto store = [&](auto v, std::size_t at) ROOFLANE_LAMBDA {
    if constexpr (kStream) {
      hn::Stream(v, d, y + at);
    } else {
      hn::StoreU(v, d, y + at);
    }
  };
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto v0 = value(i, Whole());
    const auto v1 = value(i + lanes, Whole());
    const auto v2 = value(i + 2 * lanes, Whole());
    const auto v3 = value(i + 3 * lanes, Whole());
    store(v0, i);
    store(v1, i + lanes);
    store(v2, i + 2 * lanes);
    store(v3, i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) store(value(i, Whole()), i);
  if (i < n) StoreRow(value(i, Part{n - i}), d, y + i, Part{n - i});
}

// Adds value(i, fill) for all i < n into `sum`, with i and fill as above; lanes beyond a part must
// be 0. Eight vectors are added as a tree first, so that LongSum's four operations are shared by
// eight.
template <class D, class Value>
HWY_INLINE void SumRow(D d, LongSum<D>& sum, std::size_t n, Value value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const std::size_t lanes = hn::Lanes(d);
  const auto four = [&](std::size_t at) ROOFLANE_LAMBDA {
    const auto v0 = value(at, Whole());
    const auto v1 = value(at + lanes, Whole());
    const auto v2 = value(at + 2 * lanes, Whole());
    const auto v3 = value(at + 3 * lanes, Whole());
    return hn::Add(hn::Add(v0, v1), hn::Add(v2, v3));
  };
  std::size_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    const auto low = four(i);
    sum.Add(hn::Add(low, four(i + 4 * lanes)));
  }
  if (i + 4 * lanes <= n) {
    sum.Add(four(i));
    i += 4 * lanes;
  }
  for (; i + lanes <= n; i += lanes) sum.Add(value(i, Whole()));
  if (i < n) sum.Add(value(i, Part{n - i}));
}

// Sum and squared distances from a pivot of the elements of a row that stay in L1.
struct RowSums {
  double sum;   // of x in double: |error| <= n·2^-53·Σ|x|, exact where all are equal, n < 2^29
  float pivot;  // the mean of four elements
  double squares;  // Σ(x - pivot)²: relative error below (40 + n/2048)·u
};

// One visit: 2 conversions, 2 additions in double, 1 subtraction and 1 multiply-add a vector. The
// sum is one of doubles because a compensated sum of floats takes as many operations (tried: no
// faster on Zen 5, no fewer on Intel's two ports). Squares add up to 32 a lane before they join the
// total, so that roundings do not grow with the row. Two sets of accumulators hide the latencies:
// four were slower in rows of 768. Touches each line at `ahead` too, what memory will be asked for
// next, unless it is null. n > 0.
HWY_INLINE RowSums SumAndSquares(const float* x, std::size_t n, const float* ahead) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t half = hn::Lanes(dd);  // lanes / 2, or lanes where that is 1
  const float pivot = (x[0] * 0.25f + x[n / 4] * 0.25f) + (x[n / 2] * 0.25f + x[n - 1] * 0.25f);
  const V centre = hn::Set(d, pivot);
  auto sum0 = hn::Zero(dd), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  V squares = hn::Zero(d);
  const auto promoted = [&](std::size_t at)
                            ROOFLANE_LAMBDA { return hn::PromoteTo(dd, hn::LoadU(df, x + at)); };
  // x - pivot, as a multiply-add by 1 where that is one operation: Zen's multiply-add units idle
  // here while its adders are busy (12 % on a Zen 5).
  const auto distance = [&](std::size_t at) ROOFLANE_LAMBDA {
#if HWY_TARGET <= HWY_AVX2
    return hn::MulSub(hn::LoadU(d, x + at), hn::Set(d, 1.0f), centre);
#else
    return hn::Sub(hn::LoadU(d, x + at), centre);
#endif
  };
  std::size_t i = 0;
  while (i + 2 * lanes <= n) {
    const std::size_t stop = std::min(n, i + 64 * lanes);
    V squares0 = hn::Zero(d), squares1 = squares0;
    for (; i + 2 * lanes <= stop; i += 2 * lanes) {
      if (ahead != nullptr) {
        hwy::Prefetch(ahead + i);
        hwy::Prefetch(ahead + i + lanes);
      }
      sum0 = hn::Add(sum0, promoted(i));
      if (half < lanes) sum1 = hn::Add(sum1, promoted(i + half));
      sum2 = hn::Add(sum2, promoted(i + lanes));
      if (half < lanes) sum3 = hn::Add(sum3, promoted(i + lanes + half));
      const V distance0 = distance(i);
      const V distance1 = distance(i + lanes);
      squares0 = hn::MulAdd(distance0, distance0, squares0);
      squares1 = hn::MulAdd(distance1, distance1, squares1);
    }
    squares = hn::Add(squares, hn::Add(squares0, squares1));
  }
  for (std::size_t rest = i; rest + half <= n; rest += half) {
    sum0 = hn::Add(sum0, promoted(rest));
  }
  if (const std::size_t left = (n - i) % half; left != 0) {
    const auto part = LoadRow(df, x + n - left, Part{left}, hn::Zero(df));
    sum1 = hn::Add(sum1, hn::PromoteTo(dd, part));
  }
  if (i + lanes <= n) {
    const V apart = distance(i);
    squares = hn::MulAdd(apart, apart, squares);
    i += lanes;
  }
  if (i < n) {
    const V apart = hn::Sub(LoadRow(d, x + i, Part{n - i}, centre), centre);
    squares = hn::MulAdd(apart, apart, squares);
  }
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return {hn::GetLane(hn::SumOfLanes(dd, sum)), pivot, static_cast<double>(SumLanes(d, squares))};
}

// Where lane r of a gather finds its element when each lane walks a row of its own: r·stride, and
// for lanes at or beyond `rows` the last row again. Offsets must fit 31 bits.
template <class D>
HWY_INLINE auto RowOffsets(D /*d*/, std::size_t rows, std::size_t stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const auto lane = hn::Min(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(rows - 1)));
  return hn::Mul(lane, hn::Set(di, static_cast<std::int32_t>(stride)));
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
