// What LayerNorm and RMSNorm sum over a row that stays in L1: the elements and their squared
// distances from a pivot, or the squares alone.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_NORM_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_NORM_SUMS_INL_H_
#undef ROOFLANE_KERNELS_COMMON_NORM_SUMS_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_NORM_SUMS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// Sum and squared distances from a pivot of the elements of a row that stay in L1.
struct RowSums {
  double sum;   // of x in double: |error| <= n·2^-53·Σ|x|, exact where all are equal, n < 2^29
  float pivot;  // the mean of four elements
  double squares;  // Σ(x - pivot)²: relative error below (40 + n/2048)·u
};

// What gathers them, a vector of D at a time: 2 conversions, 2 additions of DD, 1 subtraction and 1
// multiply-add. The sum is one of doubles because a compensated sum of floats takes as many
// operations (tried: no faster on Zen 5, no fewer on Intel's two ports; 1.5 times the time on Zen
// 4). Zen adds and converts in the same units while those that multiply and add idle, so that some
// additions are multiply-adds by 1: that of the pivot (12 % on a Zen 5), or, `kSumByOnes`, those of
// doubles instead.
template <class D, class DD, bool kSumByOnes>
class RowSummer {
  using DF = hn::Rebind<float, DD>;
  using V = hn::Vec<D>;
  using VD = hn::Vec<DD>;
  using VF = hn::Vec<DF>;

 public:
  HWY_INLINE explicit RowSummer(float pivot)
      : centre_(hn::Set(D(), pivot)),
        low_(hn::Zero(DD())),
        high_(low_),
        squares_(hn::Zero(D())),
        total_(squares_) {}

  template <class Row>
  HWY_INLINE void Add(Row p) {
    const D d;
    V distance = LoadElements(d, p, Whole());
#if HWY_TARGET == HWY_SCALAR
    low_ = Plus(low_, p);
#else
    if constexpr (std::is_same_v<Row, const float*>) {
      low_ = Plus(low_, p);
      high_ = Plus(high_, p + hn::Lanes(DD()));
    } else {  // converted and added up once
      low_ = Plus(low_, hn::LowerHalf(DF(), distance));
      high_ = Plus(high_, hn::UpperHalf(DF(), distance));
    }
#endif
    if constexpr (HWY_TARGET <= HWY_AVX2 && !kSumByOnes) {
      distance = hn::MulSub(distance, hn::Set(d, 1.0f), centre_);
    } else {
      distance = hn::Sub(distance, centre_);
    }
    squares_ = hn::MulAdd(distance, distance, squares_);
  }

  // The last n < Lanes elements.
  template <class Row>
  HWY_INLINE void AddPart(Row p, std::size_t n) {
    const V distance = hn::Sub(LoadElements(D(), p, Part{n}, centre_), centre_);
    squares_ = hn::MulAdd(distance, distance, squares_);
    const std::size_t half = hn::Lanes(DD());
    if (n >= half) {
      low_ = Plus(low_, p);
      p = p + half;
      n -= half;
    }
    if (n == 0) return;
    high_ = hn::Add(high_, hn::PromoteTo(DD(), LoadElements(DF(), p, Part{n})));
  }

  // Called at least every 64 additions, this keeps the squares' roundings from growing with the
  // row.
  HWY_INLINE void Settle() {
    total_ = hn::Add(total_, squares_);
    squares_ = hn::Zero(D());
  }

  HWY_INLINE void Join(const RowSummer& other) {
    low_ = hn::Add(low_, other.low_);
    high_ = hn::Add(high_, other.high_);
    squares_ = hn::Add(squares_, other.squares_);
    total_ = hn::Add(total_, other.total_);
  }

  HWY_INLINE RowSums Result() const {
    return {SumLanes(DD(), hn::Add(low_, high_)), hn::GetLane(centre_),
            static_cast<double>(SumLanes(D(), hn::Add(total_, squares_)))};
  }

 private:
  // The sum and a vector of elements, which may be those from p on.
  template <class Row>
  static HWY_INLINE VD Plus(VD sum, Row p) {
    return Plus(sum, VF(LoadElements(DF(), p, Whole())));
  }
  static HWY_INLINE VD Plus(VD sum, VF from) {
    const VD x = hn::PromoteTo(DD(), from);
    if constexpr (kSumByOnes) {
      return hn::MulAdd(x, hn::Set(DD(), 1.0), sum);
    } else {
      return hn::Add(sum, x);
    }
  }

  V centre_;
  VD low_, high_;
  V squares_, total_;
};

using WholeSummer = RowSummer<hn::ScalableTag<float>, hn::ScalableTag<double>, false>;

#if HWY_TARGET <= HWY_AVX3
// The same for cores that take a vector of 512 bits as two halves (common::halves_vectors): a Zen 4
// converts two halves in three quarters of the time that the whole takes, and the sums, twice as
// many, hide the longer latency of multiply-adds. (Predicted and measured in L1: 3.2 cycles for 16
// elements where whole vectors take 4.7. The upper quarters out of a register instead of memory:
// 1.2 times the time.)
class HalvesSummer {
  using Half = hn::Half<hn::ScalableTag<float>>;
  static constexpr std::size_t kHalf = hn::MaxLanes(Half());
  using Summer = RowSummer<Half, hn::Half<hn::ScalableTag<double>>, true>;

 public:
  HWY_INLINE explicit HalvesSummer(float pivot) : lower_(pivot), upper_(lower_) {}

  template <class Row>
  HWY_INLINE void Add(Row p) {
    lower_.Add(p);
    upper_.Add(p + kHalf);
  }

  template <class Row>
  HWY_INLINE void AddPart(Row p, std::size_t n) {
    if (n < kHalf) return lower_.AddPart(p, n);
    lower_.Add(p);
    if (n != kHalf) upper_.AddPart(p + kHalf, n - kHalf);
  }

  HWY_INLINE void Settle() {
    lower_.Settle();
    upper_.Settle();
  }

  HWY_INLINE void Join(const HalvesSummer& other) {
    lower_.Join(other.lower_);
    upper_.Join(other.upper_);
  }

  HWY_INLINE RowSums Result() {
    lower_.Join(upper_);
    return lower_.Result();
  }

 private:
  Summer lower_, upper_;
};

template <bool kHalves>
using SummerOf = std::conditional_t<kHalves, HalvesSummer, WholeSummer>;
#else
template <bool kHalves>
using SummerOf = WholeSummer;
#endif

// The mean of four of n > 0 elements. Not of the first few alone, which may be unlike the rest.
template <class Row>
HWY_INLINE float PivotOf(Row x, std::size_t n) {
  const auto quarter = [&](std::size_t i)
                           ROOFLANE_LAMBDA { return static_cast<float>(x[i]) * 0.25f; };
  return (quarter(0) + quarter(n / 4)) + (quarter(n / 2) + quarter(n - 1));
}

// A row's sums in the making: even vectors here, odd ones there, which hides the latencies. (Four
// summers a row were slower in rows of 768.)
template <class Summer>
struct RowVisit {
  Summer even, odd;
  template <class Row>
  HWY_INLINE RowVisit(Row x, std::size_t n) : even(PivotOf(x, n)), odd(even) {}
  template <class Row>
  HWY_INLINE void AddTwo(Row p, std::size_t lanes) {
    even.Add(p);
    odd.Add(p + lanes);
  }
  HWY_INLINE void Settle() {
    even.Settle();
    odd.Settle();
  }
  // The last n < 2·lanes elements.
  template <class Row>
  HWY_INLINE RowSums End(Row p, std::size_t n, std::size_t lanes) {
    if (n >= lanes) {
      even.Add(p);
      p = p + lanes;
      n -= lanes;
    }
    if (n != 0) odd.AddPart(p, n);
    even.Join(odd);
    return even.Result();
  }
};

// One visit of n > 0 elements; `policy` as in prefetch.hpp. After every eight vectors, or fewer
// at the end, after_eight(elements so far) is called.
template <bool kHalves, class Row, class Policy, class AfterEight>
HWY_INLINE RowSums SumAndSquares(Row x, std::size_t n, Policy policy, AfterEight after_eight) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  RowVisit<SummerOf<kHalves>> visit(x, n);
  std::size_t i = 0;
  while (i + 2 * lanes <= n) {
    const std::size_t settle = std::min(n, i + 64 * lanes);
    while (i + 2 * lanes <= settle) {
      for (const std::size_t stop = std::min(settle, i + 8 * lanes); i + 2 * lanes <= stop;
           i += 2 * lanes) {
        AskForTwo(policy, x + i, lanes);
        visit.AddTwo(x + i, lanes);
      }
      after_eight(i);
    }
    visit.Settle();
  }
  // The rest of the row too: each line that nobody asked for is waited for.
  for (std::size_t at = i; at < n; at += lanes) policy(x + at);
  return visit.End(x + i, n - i, lanes);
}

// Sums of squares of eight vectors at a time, each in a vector of its own: two multiply-adds a
// cycle of four cycles' latency.
struct EightSums {
  using Tag = hn::ScalableTag<float>;
  using V = hn::Vec<Tag>;
  V s0, s1, s2, s3, s4, s5, s6, s7;

  HWY_INLINE EightSums() { Clear(); }
  HWY_INLINE void Clear() { s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = hn::Zero(Tag()); }
  template <class Row, class Policy>
  HWY_INLINE void Add(Row p, std::size_t lanes, Policy policy) {
    const auto add_two = [&](V& even, V& odd, Row at) ROOFLANE_LAMBDA {
      AskForTwo(policy, at, lanes);
      const V x = LoadElements(Tag(), at, Whole());
      even = hn::MulAdd(x, x, even);
      const V next = LoadElements(Tag(), at + lanes, Whole());
      odd = hn::MulAdd(next, next, odd);
    };
    add_two(s0, s1, p);
    add_two(s2, s3, p + 2 * lanes);
    add_two(s4, s5, p + 4 * lanes);
    add_two(s6, s7, p + 6 * lanes);
  }
  HWY_INLINE V Total() const {
    return hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                   hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  }
};

// The sum of the squares of n elements; relative error below (40 + n/8192)·u, since no lane adds
// more than 64 of them before it is added to a total. `policy` as in prefetch.hpp. After every
// eight vectors after_eight(elements so far) is called.
template <class Row, class Policy, class AfterEight>
HWY_INLINE double SumOfSquares(Row x, std::size_t n, Policy policy, AfterEight after_eight) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  V total = hn::Zero(d);
  std::size_t i = 0;
  while (i + 8 * lanes <= n) {
    EightSums sums;
    for (const std::size_t settle = std::min(n, i + 512 * lanes); i + 8 * lanes <= settle;) {
      sums.Add(x + i, lanes, policy);
      i += 8 * lanes;
      after_eight(i);
    }
    total = hn::Add(total, sums.Total());
  }
  V rest = hn::Zero(d);
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V even = LoadElements(d, x + i, Whole()), odd = LoadElements(d, x + i + lanes, Whole());
    AskForTwo(policy, x + i, lanes);
    total = hn::MulAdd(even, even, total);
    rest = hn::MulAdd(odd, odd, rest);
  }
  for (; i < n; i += lanes) {
    policy(x + i);
    const V last = i + lanes <= n ? V(LoadElements(d, x + i, Whole()))
                                  : V(LoadElements(d, x + i, Part{n - i}));
    rest = hn::MulAdd(last, last, rest);
  }
  return static_cast<double>(SumLanes(d, hn::Add(total, rest)));
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
