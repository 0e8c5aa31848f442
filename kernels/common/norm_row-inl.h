// One row of LayerNorm, kCentred, or RMSNorm, which has no mean and no beta: its moments, and its
// result from them. Which rows are worked on together is in norm_rows-inl.h and norm_short-inl.h.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_NORM_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_NORM_ROW_INL_H_
#undef ROOFLANE_KERNELS_COMMON_NORM_ROW_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_NORM_ROW_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"
#include "kernels/common/double_row-inl.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/norm_sums-inl.h"
#include "kernels/common/norms.hpp"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
inline constexpr std::size_t kBlock = row_block;

// Moments from the sums of n > 0 elements. The mean is that of a sum in double: an element near it
// is only as good as the mean itself (a float32 sum, compensated or about a pivot, leaves
// u·sigma/sqrt(n) in the mean, many times the bound of an element that sits on it). The squares are
// taken again in double, about the mean, where float32 lost them, and where the pivot is so far
// out, beyond 1.7 sigma, that taking its distance out of them would cost digits.
template <class X>
HWY_INLINE Moments MomentsFrom(const RowSums& sums, X x, std::size_t n, double eps) {
  const auto count = static_cast<double>(n);
  double mean = sums.sum / count;
  const double lacking = mean - sums.pivot;
  const double excess = lacking * lacking * count;
  const bool holds = squares_hold(sums.squares, count, eps);
  // Not true of NaN.
  const bool fit = excess <= 0.75 * sums.squares && holds;
  if (HWY_LIKELY(fit)) return {static_cast<std::int64_t>(n), mean, sums.squares - excess};
  if (!holds) mean = SumInDouble(x, n) / count;  // where x + residual overflowed
  return {static_cast<std::int64_t>(n), mean, SquaresInDouble(x, n, mean), !holds};
}

// Elements of a row of n that are summed at a time: squares alone need not stay in cache.
template <bool kCentred>
HWY_INLINE std::size_t BlockOf(std::size_t n) {
  return kCentred ? kBlock : n;
}

// Moments of a block, n > 0 elements. `policy` as in prefetch.hpp. After every eight
// vectors, or fewer at the end, after_eight(elements so far) is called.
template <bool kCentred, bool kHalves, class X, class Policy, class AfterEight>
HWY_INLINE Moments MomentsOfBlock(X x, std::size_t n, double eps, Policy policy,
                                  AfterEight after_eight) {
  if constexpr (kCentred) {
    return MomentsFrom(SumAndSquares<kHalves>(x, n, policy, after_eight), x, n, eps);
  } else {
    const auto count = static_cast<std::int64_t>(n);
    const double squares = SumOfSquares(x, n, policy, after_eight);
    const bool holds = squares_hold(squares, static_cast<double>(n), eps);
    return {count, 0, HWY_LIKELY(holds) ? squares : SquaresInDouble(x, n, 0), !holds};
  }
}

// Moments of any number of elements: each block is read once. `pages`: and prefetched from several
// pages at a time.
template <bool kCentred, bool kHalves, class X>
Moments MomentsOfBlocks(X x, std::size_t n, double eps, bool pages) {
  Moments whole;
  const PrefetchPages policy{last_of(x, n)};
  const auto nothing = [](std::size_t) ROOFLANE_LAMBDA {};
  const std::size_t block = BlockOf<kCentred>(n);
  for (std::size_t i = 0; i < n; i += block) {
    const std::size_t count = std::min(block, n - i);
    whole = merge(
        whole, kStreams && pages
                   ? MomentsOfBlock<kCentred, kHalves>(x + i, count, eps, policy, nothing)
                   : MomentsOfBlock<kCentred, kHalves>(x + i, count, eps, NoPrefetch(), nothing));
  }
  return whole;
}

// What a row's elements are mapped with. The mean is a sum of two floats: x - high is exact where
// the mean dwarfs the deviations, and low is what high lacks. `wide`: only double can write it.
struct Mapping {
  float high = 0, low = 0, scale = 0;
  bool wide = false;
  Mapping() = default;
  Mapping(double mean, double scale_in)
      : high(static_cast<float>(mean)),
        low(static_cast<float>(mean - high)),
        scale(static_cast<float>(scale_in)) {}
  Mapping(float high_in, float low_in, float scale_in)
      : high(high_in), low(low_in), scale(scale_in) {}
  Mapping(const Moments& moments, double eps) : Mapping(moments.mean, scale_of(moments, eps)) {
    wide = moments.wide;
    // The means of two blocks may differ too much although the squares of each fit.
    if (moments.count > static_cast<std::int64_t>(kBlock)) {
      wide |= !float_writes(moments.mean, scale_of(moments, eps));
    }
  }
};

// For a row that is one block. If only the squares leave float32, they are not summed again here,
// but by the code that writes the row in double.
template <bool kCentred, bool kHalves, class X, class Policy>
HWY_INLINE Mapping MappingOfBlock(X x, std::size_t n, double eps, Policy policy) {
  const auto nothing = [](std::size_t) ROOFLANE_LAMBDA {};
  if constexpr (kCentred) {
    return Mapping(MomentsOfBlock<kCentred, kHalves>(x, n, eps, policy, nothing), eps);
  } else {
    const double squares = SumOfSquares(x, n, policy, nothing);
    Mapping row(0, scale_of({static_cast<std::int64_t>(n), 0, squares}, eps));
    row.wide = !squares_hold(squares, static_cast<double>(n), eps);
    return row;
  }
}

// The same of several rows.
struct Mappings {
  const float *high, *low, *scale;
  HWY_INLINE Mapping operator[](std::int64_t i) const { return Mapping(high[i], low[i], scale[i]); }
};

// (x - mean) · scale · gamma + beta, or x · scale · gamma. (The former as a subtraction and a
// multiply-add, x - high and · scale - low·scale, is an operation less, and 25 % slower on a
// Zen 5.)
template <bool kCentred>
class Normalise {
 public:
  HWY_INLINE explicit Normalise(const Mapping& row)
      : high_(hn::Set(Tag(), row.high)),
        low_(hn::Set(Tag(), row.low)),
        scale_(hn::Set(Tag(), row.scale)) {}
  HWY_INLINE Vector operator()(Vector x, Vector gamma, [[maybe_unused]] Vector beta) const {
    if constexpr (kCentred) {
      return hn::MulAdd(hn::Mul(hn::Sub(hn::Sub(x, high_), low_), scale_), gamma, beta);
    } else {
      return hn::Mul(hn::Mul(x, scale_), gamma);
    }
  }

 private:
  Vector high_, low_, scale_;
};

// Beta's elements, or, not kCentred, none.
template <bool kCentred, class Fill>
HWY_INLINE Vector BetaAt([[maybe_unused]] const float* beta, [[maybe_unused]] Fill fill) {
  if constexpr (kCentred) return LoadElements(Tag(), beta, fill);
  return hn::Zero(Tag());
}

// The function of (i, fill) that gives a row's result from i on.
template <bool kCentred, class X>
HWY_INLINE auto ResultOf(X x, const float* gamma, const float* beta, const Mapping& row) {
  const Normalise<kCentred> normalise(row);
  return [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Tag d;
    return normalise(LoadElements(d, x + i, fill), LoadElements(d, gamma + i, fill),
                     BetaAt<kCentred>(beta + i, fill));
  };
}

// A row that only double can compute, from x alone. y may be x.
template <bool kCentred, class Io>
HWY_NOINLINE void WideRow(const Io& io, std::int64_t at, std::size_t n, double eps) {
  const auto x = io.x_row(at);
  const double mean = kCentred ? SumInDouble(x, n) / static_cast<double>(n) : 0;
  const Moments moments = {static_cast<std::int64_t>(n), mean, SquaresInDouble(x, n, mean)};
  WriteInDouble(x, io.gamma, io.beta, io.y_row(at), n, mean, scale_of(moments, eps));
}

// y of a few rows, counted by R, from `at` on: gamma and beta are read once for all of them.
template <bool kCentred, class Io, class Rows, std::size_t... R>
HWY_INLINE void FinishTogether(const Io& io, std::int64_t at, std::size_t n, const Rows& rows,
                               std::index_sequence<R...>) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const typename Io::Row x[] = {io.x_row(at + static_cast<std::int64_t>(R))...};
  typename Io::Element* y[] = {io.y_row(at + static_cast<std::int64_t>(R))...};
  const Normalise<kCentred> normalise[] = {Normalise<kCentred>(rows[R])...};
  const auto write = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Vector gamma = LoadElements(d, io.gamma + i, fill);
    const Vector beta = BetaAt<kCentred>(io.beta + i, fill);
    (StoreElements(normalise[R](LoadElements(d, x[R] + i, fill), gamma, beta), d, y[R] + i, fill),
     ...);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) write(i, Whole());
  if (i < n) write(i, Part{n - i});
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
