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

// The sum of the n elements at x in double: |error| <= n·2^-53·Σ|x|, exact where all are equal and
// n < 2^29. Four accumulators hide the latency of an addition (4 cycles at 1 to 2 a cycle).
HWY_INLINE double SumRowInDouble(const float* x, std::size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const std::size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::PromoteTo(d, hn::LoadU(df, x + i)));
    sum1 = hn::Add(sum1, hn::PromoteTo(d, hn::LoadU(df, x + i + lanes)));
    sum2 = hn::Add(sum2, hn::PromoteTo(d, hn::LoadU(df, x + i + 2 * lanes)));
    sum3 = hn::Add(sum3, hn::PromoteTo(d, hn::LoadU(df, x + i + 3 * lanes)));
  }
  for (; i + lanes <= n; i += lanes) {
    sum0 = hn::Add(sum0, hn::PromoteTo(d, hn::LoadU(df, x + i)));
  }
  if (i < n) {
    sum1 = hn::Add(sum1, hn::PromoteTo(d, LoadRow(df, x + i, Part{n - i}, hn::Zero(df))));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
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
