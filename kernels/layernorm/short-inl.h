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
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/slots-inl.h"
#include "kernels/layernorm/layernorm.hpp"
#include "kernels/layernorm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm {
namespace HWY_NAMESPACE {

// Up to this length, walking over a row three times costs less than waiting for its reductions.
// (On a Zen 5 both ways were equal between 97 and 128 elements, with AVX-512 and with AVX2, when
// each row was reduced on its own.)
inline constexpr std::size_t kBatched = 96;

// The same beyond the caches where y is dense (a Zen 4: 100 elements 1.25 times as fast as one row
// after the other, 128 1.15, 150 as fast).
inline constexpr std::size_t kBatchedStreamed = 128;

// Rows side by side, as many vectors of them as I counts at a time.
template <class Slots, int... I>
HWY_INLINE std::int64_t SlotRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                                 std::size_t cols, double eps, const Slots& slots,
                                 std::integer_sequence<int, I...>) {
  const Tag d;
  const std::size_t step = Slots::Rows() * cols;
  const auto count = static_cast<double>(cols);
  const Vector gamma = slots.Repeat(io.gamma);
  const Vector beta = slots.Repeat(io.beta);
  const Vector share = hn::Set(d, static_cast<float>(1 / count));
  const Vector added = hn::Set(d, static_cast<float>(eps));
  const Vector zero = hn::Zero(d);
  const Vector least = hn::Set(d, 0x1p-120f), most = hn::Set(d, 0x1p120f);  // of a variance
  const auto group = [&](Vector& first, const float* x, const float* next,
                         float* y) ROOFLANE_LAMBDA {
    Vector v[] = {I == 0 ? first : slots.Load(x + I * step, zero)...};
    first = slots.Load(next, zero);
    slots.Centre(v, count);
    const Vector squares[] = {hn::Mul(v[I], v[I])...};
    const Vector variance = hn::MulAdd(Slots::Gather(squares, hc::Plus()), share, added);
    // Not true of NaN.
    const auto fits = hn::And(hn::Ge(variance, least), hn::Le(variance, most));
    if (HWY_UNLIKELY(!hn::AllTrue(d, fits))) return false;
    const typename Slots::Spread scale(hn::Div(hn::Set(d, 1.0f), hn::Sqrt(variance)));
    (slots.Store(hn::MulAdd(hn::Mul(v[I], scale.template Of<I>()), gamma, beta), y + I * step),
     ...);
    return true;
  };
  return slots.ForRows(io, begin, end, zero, group);
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
  bool wide = false;  // one of them at least is for double (WideRow)
};

// Of those, rows that are worked on together, and share what reductions across lanes cost.
inline constexpr std::int64_t kTogether = 4;
using Together = std::make_index_sequence<kTogether>;

// Where they begin: rows from `row` on, the last one again where there are no more.
struct Four {
  const float* x[kTogether];
  HWY_INLINE Four(const LayerNormOperands& io, std::int64_t row, std::int64_t end) {
    for (std::int64_t i = 0; i < kTogether; ++i)
      x[i] = io.x + std::min(row + i, end - 1) * io.x_stride;
  }
};

// sum[i] = Σx of row i.
template <std::size_t... R>
HWY_INLINE void SumsOf(const Four& rows, std::size_t n, double* sum, std::index_sequence<R...>) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  using Wide = hn::Vec<decltype(dd)>;
  const std::size_t lanes = hn::Lanes(dd);
  const float* x[] = {rows.x[R]...};
  Wide even[] = {((void)R, hn::Zero(dd))...};
  Wide odd[] = {((void)R, hn::Zero(dd))...};
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    ((even[R] = hn::Add(even[R], hn::PromoteTo(dd, hn::LoadU(df, x[R] + i)))), ...);
    ((odd[R] = hn::Add(odd[R], hn::PromoteTo(dd, hn::LoadU(df, x[R] + i + lanes)))), ...);
  }
  if (i + lanes <= n) {
    ((even[R] = hn::Add(even[R], hn::PromoteTo(dd, hn::LoadU(df, x[R] + i)))), ...);
    i += lanes;
  }
  if (i < n) {
    const hc::Part part{n - i};
    ((odd[R] = hn::Add(odd[R], hn::PromoteTo(dd, hc::LoadRow(df, x[R] + i, part)))), ...);
  }
  ((even[R] = hn::Add(even[R], odd[R])), ...);
  hc::ReduceFour(dd, even[0], even[1], even[2], even[3], hc::Plus(), sum);
}

// squares[i] = Σ(x - mean)² of row i, mean = high[i] + low[i].
template <std::size_t... R>
HWY_INLINE void SquaresOf(const Four& rows, std::size_t n, const float* mean_high,
                          const float* mean_low, float* squares, std::index_sequence<R...>) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const float* x[] = {rows.x[R]...};
  const Vector high[] = {hn::Set(d, mean_high[R])...};
  const Vector low[] = {hn::Set(d, mean_low[R])...};
  Vector sum[] = {((void)R, hn::Zero(d))...};
  const auto square = [](Vector from, Vector high_of, Vector low_of, Vector& to) ROOFLANE_LAMBDA {
    const Vector apart = hn::Sub(hn::Sub(from, high_of), low_of);
    to = hn::MulAdd(apart, apart, to);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    (square(hn::LoadU(d, x[R] + i), high[R], low[R], sum[R]), ...);
  }
  if (i < n) {
    const hc::Part part{n - i};
    const auto last = [&](const float* from, Vector high_of, Vector low_of,
                          Vector& to) ROOFLANE_LAMBDA {
      const Vector apart = hn::Sub(hn::Sub(hc::LoadRow(d, from, part), high_of), low_of);
      const Vector filled = hc::Filled(d, apart, part);
      to = hn::MulAdd(filled, filled, to);
    };
    (last(x[R] + i, high[R], low[R], sum[R]), ...);
  }
  hc::ReduceFour(d, sum[0], sum[1], sum[2], sum[3], hc::Plus(), squares);
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
  batch.wide = false;
  for (std::size_t i = 0; i < kBatch; i += hn::Lanes(wide)) {
    const auto squares = hn::PromoteTo(wide, hn::Load(near, batch.squares + i));
    const auto variance = hn::Div(squares, hn::Set(wide, static_cast<double>(n)));
    const auto sum = hn::Add(variance, hn::Set(wide, eps));
    // Not true of NaN.
    const auto fits =
        hn::And(hn::Ge(sum, hn::Set(wide, 0x1p-120)), hn::Le(sum, hn::Set(wide, 0x1p120)));
    if (HWY_UNLIKELY(!hn::AllTrue(wide, fits))) batch.wide = true;
    const auto sigma = hn::Sqrt(sum);
    hn::Store(hn::Div(one, hn::DemoteTo(near, sigma)), near, batch.scale + i);
  }
}

// Rows from `begin` to `end` in batches: four rows are summed, four squared, four written, each of
// a batch that is one behind, so that nothing waits for a reduction across lanes; divisions and
// roots are shared by a batch. kStream: y, which is dense, goes past the caches. (Each row streamed
// on its own, with its ends, took a Zen 4 twice the time with 24 elements.)
template <bool kStream, class Policy>
std::int64_t BatchedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                         std::size_t n, double eps, Policy policy) {
  Batch ring[3];
  hc::StreamedByL1<Tag, kTogether * kBatchedStreamed> lines(io.y + begin * io.y_stride);
  for (std::int64_t first = begin; first < end + 2 * kBatch; first += kBatch) {
    const std::int64_t turn = (first - begin) / kBatch;
    Batch& summed = ring[turn % 3];
    Batch& squared = ring[(turn + 2) % 3];
    Batch& written = ring[(turn + 1) % 3];
    MeansOf(squared, n);
    ScalesOf(written, n, eps);
    for (std::int64_t i = 0; i < kBatch; i += kTogether) {
      const std::int64_t row = first + i;
      if (row < end) {
        const Four rows(io, row, end);
        if constexpr (kStream) {
          for (const float* x : rows.x) {
            for (std::size_t j = 0; j < n; j += 16) policy(x + j);
          }
        }
        SumsOf(rows, n, summed.sum + i, Together());
      }
      const std::int64_t second = row - kBatch;
      if (second >= begin && second < end) {
        SquaresOf(Four(io, second, end), n, squared.high + i, squared.low + i, squared.squares + i,
                  Together());
      }
      const std::int64_t third = second - kBatch;
      if (third < begin || third >= end) continue;
      if (HWY_UNLIKELY(written.wide)) {
        if constexpr (kStream) lines.Close();
        return third;
      }
      const Known known = {written.high + i, written.low + i, written.scale + i};
      const std::int64_t count = std::min(kTogether, end - third);
      LayerNormOperands four = io;
      four.x += third * io.x_stride;
      four.y = kStream ? lines.Room() : io.y + third * io.y_stride;
      if (count == kTogether) {
        FinishTogether(four, 0, n, known, Together());
      } else {
        for (std::int64_t r = 0; r < count; ++r) {
          Finish<false>(four.x + r * io.x_stride, io.gamma, io.beta, four.y + r * io.y_stride, n,
                        known[r]);
        }
      }
      if constexpr (kStream) lines.Written(static_cast<std::size_t>(count) * n);
    }
  }
  if constexpr (kStream) lines.Close();
  return end;
}

// Rows of at most kBatched elements from `begin` to `end`, of kBatchedStreamed where those would be
// streamed but for being in place.
inline std::int64_t ShortRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                              std::size_t n, double eps) {
  std::int64_t done = begin;
  const bool side_by_side = hc::WithSlots(io, n, [&](const auto& slots) ROOFLANE_LAMBDA {
    constexpr int vectors = std::decay_t<decltype(slots)>::kLanes;
    done = SlotRows(io, begin, end, n, eps, slots, std::make_integer_sequence<int, vectors>());
  });
  if (side_by_side) return done;
  return BatchedRows<false>(io, begin, end, n, eps, common::NoPrefetch());
}

// The same past the caches: rows of up to a vector, or y dense.
inline std::int64_t StreamedShortRows(const LayerNormOperands& io, std::int64_t begin,
                                      std::int64_t end, std::size_t n, double eps,
                                      common::Prefetch prefetch) {
  if (n <= hn::Lanes(Tag())) {
    const auto ordinary = [=](const LayerNormOperands& part, std::int64_t rows)
                              HWY_ATTR { return ShortRows(part, 0, rows, n, eps); };
    return hc::StreamShortRows(io, begin, end, n, prefetch == common::Prefetch::pages, ordinary);
  }
  const float* last = common::last_of_rows(io, end, n);
  const std::int64_t distance = kBatch * io.x_stride;
  std::int64_t done = begin;
  switch (prefetch) {
    case common::Prefetch::pages:
      done = BatchedRows<true>(io, begin, end, n, eps, common::PrefetchPages{last});
      break;
    case common::Prefetch::into_l2:
      done = BatchedRows<true>(io, begin, end, n, eps, common::PrefetchIntoL2{distance, last});
      break;
    case common::Prefetch::into_l1:
      done = BatchedRows<true>(io, begin, end, n, eps, common::PrefetchIntoL1{distance, last});
  }
  hwy::FlushStream();
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::layernorm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
