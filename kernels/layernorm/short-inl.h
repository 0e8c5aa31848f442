// LayerNorm of short rows: several in each vector, or in batches that share divisions and roots.
// Longer ones: hwy.cpp.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_LAYERNORM_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_LAYERNORM_SHORT_INL_H_
#undef ROOFLANE_KERNELS_LAYERNORM_SHORT_INL_H_
#else
#define ROOFLANE_KERNELS_LAYERNORM_SHORT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/slots-inl.h"
#include "kernels/layernorm/layernorm.hpp"
#include "kernels/layernorm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm {
namespace HWY_NAMESPACE {

// Up to this length, walking over a row three times costs less than waiting for its reductions.
// (On a Zen 5 both ways are equal between 97 and 128 elements, with AVX-512 and with AVX2.)
inline constexpr std::size_t kBatched = 96;
// The same beyond the caches, where memory likes rows that are fetched and written one by one.
inline constexpr std::size_t kBatchedFar = 48;

// Rows from `begin` to `end`, several in each vector; means and distances from them in double.
template <class Slots>
HWY_INLINE void SlotRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                         std::size_t cols, float eps, const Slots& slots) {
  const Tag d;
  const auto rows = static_cast<std::int64_t>(Slots::Rows());
  const Vector zero = hn::Zero(d);
  const Vector gamma = slots.Repeat(io.gamma);
  const Vector beta = slots.Repeat(io.beta);
  const Vector share = hn::Set(d, 1.0f / static_cast<float>(cols));
  const auto result_of = [&](Vector x) ROOFLANE_LAMBDA {
    const Vector centred = slots.FromMean(x, static_cast<double>(cols));
    const auto plus = [](Vector a, Vector b) ROOFLANE_LAMBDA { return hn::Add(a, b); };
    const Vector squares = slots.Across(hn::Mul(centred, centred), plus);
    const Vector sigma = hn::Sqrt(hn::MulAdd(squares, share, hn::Set(d, eps)));
    return hn::MulAdd(hn::Div(centred, sigma), gamma, beta);
  };
  std::int64_t row = begin;
  for (; row + rows <= end; row += rows) {
    slots.Store(result_of(slots.Load(io.x + row * io.x_stride, zero)), io.y + row * io.y_stride);
  }
  if (row < end) {
    const auto rest = static_cast<std::size_t>(end - row);
    slots.Store(result_of(slots.Load(io.x + row * io.x_stride, rest, zero)),
                io.y + row * io.y_stride, rest);
  }
}

// A few short rows at a time: a double of each fills the widest vector.
inline constexpr std::int64_t kBatch = 8;
using WideTag = hn::CappedTag<double, kBatch>;
using NearTag = hn::Rebind<float, WideTag>;

// What is known of its rows.
struct Batch {
  HWY_ALIGN double sum[kBatch] = {};
  HWY_ALIGN float high[kBatch] = {};  // mean = high + low
  HWY_ALIGN float low[kBatch] = {};
  HWY_ALIGN float squares[kBatch] = {};  // Σ(x - mean)²
  HWY_ALIGN float scale[kBatch] = {};
};

// Σx.
HWY_INLINE double SumOf(const float* x, std::size_t n) {
  const Tag d;
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t half = hn::Lanes(dd);
  auto low = hn::Zero(dd);
  auto high = low;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    low = hn::Add(low, hn::PromoteTo(dd, hn::LoadU(df, x + i)));
    if (half < lanes) high = hn::Add(high, hn::PromoteTo(dd, hn::LoadU(df, x + i + half)));
  }
  if (i < n) low = hn::Add(low, hc::PairSum(hc::LoadRow(d, x + i, hc::Part{n - i}, hn::Zero(d))));
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(low, high)));
}

// Σ(x - mean)², mean = high + low.
HWY_INLINE float ShortSquares(const float* x, std::size_t n, float mean_high, float mean_low) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const Vector high = hn::Set(d, mean_high);
  const Vector low = hn::Set(d, mean_low);
  Vector squares = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Vector apart = hn::Sub(hn::Sub(hn::LoadU(d, x + i), high), low);
    squares = hn::MulAdd(apart, apart, squares);
  }
  if (i < n) {
    const hc::Part part{n - i};
    const Vector apart = hn::Sub(hn::Sub(hc::LoadRow(d, x + i, part, high), high), low);
    squares = hn::Add(squares, hc::Filled(d, hn::Mul(apart, apart), part));
  }
  return hc::SumLanes(d, squares);
}

// The means of a batch from its sums.
HWY_INLINE void MeansOf(Batch& batch, std::size_t n) {
  const WideTag wide;
  const NearTag near;
  const auto count = hn::Set(wide, static_cast<double>(n));
  for (std::size_t i = 0; i < kBatch; i += hn::Lanes(wide)) {
    const auto mean = hn::Div(hn::Load(wide, batch.sum + i), count);
    const auto high = hn::DemoteTo(near, mean);
    hn::Store(high, near, batch.high + i);
    hn::Store(hn::DemoteTo(near, hn::Sub(mean, hn::PromoteTo(wide, high))), near, batch.low + i);
  }
}

// Its factors 1 / sqrt(var + eps) from its squares.
HWY_INLINE void ScalesOf(Batch& batch, std::size_t n, double eps) {
  const WideTag wide;
  const NearTag near;
  const auto one = hn::Set(near, 1.0f);
  for (std::size_t i = 0; i < kBatch; i += hn::Lanes(wide)) {
    const auto squares = hn::PromoteTo(wide, hn::Load(near, batch.squares + i));
    const auto variance = hn::Div(squares, hn::Set(wide, static_cast<double>(n)));
    const auto sigma = hn::Sqrt(hn::Add(variance, hn::Set(wide, eps)));
    hn::Store(hn::Div(one, hn::DemoteTo(near, sigma)), near, batch.scale + i);
  }
}

// Rows from `begin` to `end` in batches: one row is summed, another squared, a third written, each
// of a batch that is two behind, so that nothing waits for a reduction across lanes nor for a store
// to reach the cache; divisions and roots are shared by a batch.
template <bool kStream>
void BatchedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                 double eps) {
  constexpr std::int64_t behind = 2 * kBatch;
  Batch ring[5];
  hc::Seam<Tag> seam((Tag()));
  for (std::int64_t first = begin; first < end + 2 * behind; first += kBatch) {
    const std::int64_t turn = (first - begin) / kBatch;
    Batch& summed = ring[turn % 5];
    Batch& squared = ring[(turn + 3) % 5];
    Batch& written = ring[(turn + 1) % 5];
    MeansOf(squared, n);
    ScalesOf(written, n, eps);
    for (std::int64_t i = 0; i < kBatch; ++i) {
      const std::int64_t row = first + i;
      if (row < end) {
        const float* x = io.x + row * io.x_stride;
        if (kStream) {
          for (std::size_t j = 0; j < n; j += 16) hwy::Prefetch(x + kBatch * io.x_stride + j);
        }
        summed.sum[i] = SumOf(x, n);
      }
      const std::int64_t second = row - behind;
      if (second >= begin && second < end) {
        squared.squares[i] =
            ShortSquares(io.x + second * io.x_stride, n, squared.high[i], squared.low[i]);
      }
      const std::int64_t third = second - behind;
      if (third >= begin && third < end) {
        Row known(0, written.scale[i]);
        known.high = written.high[i];
        known.low = written.low[i];
        Finish<kStream>(io.x + third * io.x_stride, io.gamma, io.beta, io.y + third * io.y_stride,
                        n, known, &seam);
      }
    }
  }
  seam.Close(Tag());
}

// Rows of at most kBatched elements from `begin` to `end`.
inline void ShortRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                      std::size_t n, double eps) {
  const bool side_by_side = hc::WithSlots(io, n, [&](const auto& slots) ROOFLANE_LAMBDA {
    SlotRows(io, begin, end, n, static_cast<float>(eps), slots);
  });
  if (!side_by_side) BatchedRows<false>(io, begin, end, n, eps);
}

// The same past the caches.
inline void StreamedShortRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                              std::size_t n, double eps) {
  if (n >= hn::Lanes(Tag())) {
    BatchedRows<true>(io, begin, end, n, eps);
    hwy::FlushStream();
  } else {
    hc::StreamShortRows(io, begin, end, n,
                        [=](const LayerNormOperands& part, std::int64_t rows)
                            HWY_ATTR { ShortRows(part, 0, rows, n, eps); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::layernorm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
