// One row of LayerNorm: its moments, and its result from them. Which rows are worked on together is
// in hwy.cpp and short-inl.h.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_LAYERNORM_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_LAYERNORM_MOMENTS_INL_H_
#undef ROOFLANE_KERNELS_LAYERNORM_MOMENTS_INL_H_
#else
#define ROOFLANE_KERNELS_LAYERNORM_MOMENTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"
#include "kernels/common/double_row-inl.h"
#include "kernels/common/norms.hpp"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"
#include "kernels/layernorm/layernorm.hpp"

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
inline constexpr std::size_t kBlock = common::row_block;

// Moments of n > 0 elements from their sums. The mean is that of a sum in double: an element near
// it is only as good as the mean itself (a float32 sum, compensated or about a pivot, leaves
// u·sigma/sqrt(n) in the mean, many times the bound of an element that sits on it). The squares are
// taken again in double, about the mean, where float32 lost them, and where the pivot is so
// far out, beyond 1.7 sigma, that taking its distance out of them would cost digits.
HWY_INLINE Moments MomentsFrom(const hc::RowSums& sums, const float* x, std::size_t n, double eps) {
  const auto count = static_cast<double>(n);
  const double mean = sums.sum / count;
  const double lacking = mean - sums.pivot;
  const double excess = lacking * lacking * count;
  const bool holds = common::squares_hold(sums.squares, count, eps);
  // Not true of NaN.
  const bool fit = excess <= 0.75 * sums.squares && holds;
  const double squares = HWY_LIKELY(fit) ? sums.squares - excess : hc::SquaresInDouble(x, n, mean);
  return {static_cast<std::int64_t>(n), mean, squares, !holds};
}

// Moments of any number of elements: each block is read once. `pages`: and prefetched from several
// pages at a time.
template <bool kHalves>
Moments MomentsOfBlocks(const float* x, std::size_t n, double eps, bool pages) {
  Moments whole;
  const common::PrefetchPages policy{common::last_of(x, n)};
  for (std::size_t i = 0; i < n; i += kBlock) {
    const std::size_t count = std::min(kBlock, n - i);
    const hc::RowSums sums = pages ? hc::SumAndSquares<kHalves>(x + i, count, policy)
                                   : hc::SumAndSquares<kHalves>(x + i, count, common::NoPrefetch());
    whole = merge(whole, MomentsFrom(sums, x + i, count, eps));
  }
  return whole;
}

inline Moments MomentsOf(const float* x, std::size_t n, double eps, bool pages) {
  return MomentsOfBlocks<false>(x, n, eps, pages);
}

// What a row's elements are mapped with. The mean is a sum of two floats: x - high is exact where
// the mean dwarfs the deviations, and low is what high lacks. `wide`: only double can write it.
struct Row {
  float high = 0, low = 0, scale = 0;
  bool wide = false;
  Row() = default;
  Row(double mean, double scale_in)
      : high(static_cast<float>(mean)),
        low(static_cast<float>(mean - high)),
        scale(static_cast<float>(scale_in)) {}
  Row(float high_in, float low_in, float scale_in) : high(high_in), low(low_in), scale(scale_in) {}
  Row(const Moments& moments, double eps) : Row(moments.mean, scale_of(moments, eps)) {
    wide = moments.wide;
    // Blocks whose squares hold may be far apart.
    if (moments.count > static_cast<std::int64_t>(kBlock)) {
      wide |= !common::float_writes(moments.mean, scale_of(moments, eps));
    }
  }
};

// The same of several rows.
struct Known {
  const float *high, *low, *scale;
  HWY_INLINE Row operator[](std::int64_t i) const { return Row(high[i], low[i], scale[i]); }
};

// (x - mean) · scale. (As a subtraction and a multiply-add, x - high and · scale - low·scale, this
// is an operation less, and 25 % slower on a Zen 5.)
class Normalise {
 public:
  HWY_INLINE explicit Normalise(const Row& row)
      : high_(hn::Set(Tag(), row.high)),
        low_(hn::Set(Tag(), row.low)),
        scale_(hn::Set(Tag(), row.scale)) {}
  HWY_INLINE Vector operator()(Vector x) const {
    return hn::Mul(hn::Sub(hn::Sub(x, high_), low_), scale_);
  }

 private:
  Vector high_, low_, scale_;
};

// The function of (i, fill) that gives (x - mean) · scale · gamma + beta of a row's elements from i
// on.
HWY_INLINE auto ResultOf(const float* x, const float* gamma, const float* beta, const Row& row) {
  const Normalise normalise(row);
  return [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Tag d;
    return hn::MulAdd(normalise(hc::LoadRow(d, x + i, fill)), hc::LoadRow(d, gamma + i, fill),
                      hc::LoadRow(d, beta + i, fill));
  };
}

// y = (x - mean) · scale · gamma + beta. kStream: past the caches, and by way of `carry` if there
// is one.
template <bool kStream>
void Finish(const float* x, const float* gamma, const float* beta, float* y, std::size_t n,
            const Row& row, hc::StoreCarry<Tag>* carry = nullptr) {
  const Tag d;
  const auto value = ResultOf(x, gamma, beta, row);
  if (kStream && carry != nullptr) {
    hc::StreamRow(d, y, n, *carry, value);
  } else {
    hc::WriteRow<kStream>(d, y, n, value);
  }
}

// A row that only double can compute, from x alone. y may be x.
HWY_NOINLINE inline void WideRow(const float* x, const float* gamma, const float* beta, float* y,
                                 std::size_t n, double eps) {
  const double mean = hc::SumInDouble(x, n) / static_cast<double>(n);
  const Moments moments = {static_cast<std::int64_t>(n), mean, hc::SquaresInDouble(x, n, mean)};
  hc::WriteInDouble(x, gamma, beta, y, n, mean, scale_of(moments, eps));
}
HWY_INLINE void WideRow(const LayerNormOperands& io, std::int64_t at, std::size_t n, double eps) {
  WideRow(io.x + at * io.x_stride, io.gamma, io.beta, io.y + at * io.y_stride, n, eps);
}

// y of a few rows, counted by R, from `at` on: gamma and beta are read once for all of them.
template <class Rows, std::size_t... R>
HWY_INLINE void FinishTogether(const LayerNormOperands& io, std::int64_t at, std::size_t n,
                               const Rows& rows, std::index_sequence<R...>) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const float* x[] = {io.x + (at + static_cast<std::int64_t>(R)) * io.x_stride...};
  float* y[] = {io.y + (at + static_cast<std::int64_t>(R)) * io.y_stride...};
  const Normalise normalise[] = {Normalise(rows[R])...};
  const auto write = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Vector gamma = hc::LoadRow(d, io.gamma + i, fill);
    const Vector beta = hc::LoadRow(d, io.beta + i, fill);
    (hc::StoreRow(hn::MulAdd(normalise[R](hc::LoadRow(d, x[R] + i, fill)), gamma, beta), d,
                  y[R] + i, fill),
     ...);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) write(i, hc::Whole());
  if (i < n) write(i, hc::Part{n - i});
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::layernorm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
