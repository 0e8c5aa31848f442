// LayerNorm, or RMSNorm, of short rows: several in each vector, or in batches that share divisions
// and roots. Longer ones: norm_rows-inl.h.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_NORM_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_NORM_SHORT_INL_H_
#undef ROOFLANE_KERNELS_COMMON_NORM_SHORT_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_NORM_SHORT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/norm_row-inl.h"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/slots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// Up to this length, walking over a row three times costs less than waiting for its reductions.
// (On a Zen 5 both ways were equal between 97 and 128 elements, with AVX-512 and with AVX2, when
// each row was reduced on its own.)
inline constexpr std::size_t kBatched = 96;

// The same beyond the caches where y is dense (a Zen 4: 100 elements 1.25 times as fast as one row
// after the other, 128 1.15, 150 as fast).
inline constexpr std::size_t kBatchedStreamed = 128;

// Rows side by side, as many vectors of them as I counts at a time.
template <bool kCentred, class Slots, int... I>
HWY_INLINE std::int64_t SlotRows(const FloatRows& io, std::int64_t begin, std::int64_t end,
                                 std::size_t cols, double eps, const Slots& slots,
                                 std::integer_sequence<int, I...>) {
  const Tag d;
  const std::size_t step = Slots::Rows() * cols;
  const auto count = static_cast<double>(cols);
  const Vector gamma = slots.Repeat(io.gamma);
  const Vector beta = kCentred ? Vector(slots.Repeat(io.beta)) : Vector(hn::Zero(d));
  const Vector share = hn::Set(d, static_cast<float>(1 / count));
  const Vector added = hn::Set(d, static_cast<float>(eps));
  const Vector zero = hn::Zero(d);
  const Vector least = hn::Set(d, 0x1p-120f), most = hn::Set(d, 0x1p120f);  // of a variance
  const auto group = [&](Vector& first, const float* x, const float* next,
                         float* y) ROOFLANE_LAMBDA {
    Vector v[] = {I == 0 ? first : slots.Load(x + I * step, zero)...};
    first = slots.Load(next, zero);
    if constexpr (kCentred) slots.Centre(v, count);
    const Vector squares[] = {hn::Mul(v[I], v[I])...};
    const Vector variance = hn::MulAdd(Slots::Gather(squares, Plus()), share, added);
    // Not true of NaN.
    const auto fits = hn::And(hn::Ge(variance, least), hn::Le(variance, most));
    if (HWY_UNLIKELY(!hn::AllTrue(d, fits))) return false;
    const typename Slots::Spread scale(hn::Div(hn::Set(d, 1.0f), hn::Sqrt(variance)));
    const auto result = [&](Vector x, Vector factor) ROOFLANE_LAMBDA {
      const Vector scaled = hn::Mul(x, factor);
      return kCentred ? Vector(hn::MulAdd(scaled, gamma, beta)) : Vector(hn::Mul(scaled, gamma));
    };
    (slots.Store(result(v[I], scale.template Of<I>()), y + I * step), ...);
    return true;
  };
  return slots.ForRows(io, begin, end, zero, group);
}

// A few short rows at a time: a double of each fills the widest vector.
inline constexpr std::int64_t kBatch = 8;
using BatchTag = hn::CappedTag<double, kBatch>;
using FloatBatchTag = hn::Rebind<float, BatchTag>;

// What is known of its rows.
struct Batch {
  HWY_ALIGN double sum[kBatch] = {};
  HWY_ALIGN float high[kBatch] = {};  // mean = high + low
  HWY_ALIGN float low[kBatch] = {};
  HWY_ALIGN float squares[kBatch] = {};  // Σ(x - mean)²
  HWY_ALIGN float scale[kBatch] = {};
  bool wide = false;  // one of them at least is for double (WideRow)
};

// How many of those rows are computed together, and share the reductions across lanes.
inline constexpr std::int64_t kTogether = 4;
using Together = std::make_index_sequence<kTogether>;

// Where they begin: rows from `row` on, the last one again where there are no more.
struct Four {
  const float* x[kTogether];
  HWY_INLINE Four(const FloatRows& io, std::int64_t row, std::int64_t end) {
    for (std::int64_t i = 0; i < kTogether; ++i) x[i] = io.x_row(std::min(row + i, end - 1));
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
    const Part part{n - i};
    ((odd[R] = hn::Add(odd[R], hn::PromoteTo(dd, LoadRow(df, x[R] + i, part)))), ...);
  }
  ((even[R] = hn::Add(even[R], odd[R])), ...);
  ReduceFour(dd, even[0], even[1], even[2], even[3], Plus(), sum);
}

// squares[i] = Σ(x - mean)² of row i, mean = high[i] + low[i], not kCentred 0.
template <bool kCentred, std::size_t... R>
HWY_INLINE void SquaresOf(const Four& rows, std::size_t n, const float* mean_high,
                          const float* mean_low, float* squares, std::index_sequence<R...>) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const float* x[] = {rows.x[R]...};
  const Vector high[] = {hn::Set(d, mean_high[R])...};
  const Vector low[] = {hn::Set(d, mean_low[R])...};
  Vector sum[] = {((void)R, hn::Zero(d))...};
  const auto square = [d](const float* from, auto fill, [[maybe_unused]] Vector high_of,
                          [[maybe_unused]] Vector low_of, Vector& to) ROOFLANE_LAMBDA {
    Vector apart = LoadRow(d, from, fill);
    if constexpr (kCentred) apart = Filled(d, hn::Sub(hn::Sub(apart, high_of), low_of), fill);
    to = hn::MulAdd(apart, apart, to);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) (square(x[R] + i, Whole(), high[R], low[R], sum[R]), ...);
  if (i < n) (square(x[R] + i, Part{n - i}, high[R], low[R], sum[R]), ...);
  ReduceFour(d, sum[0], sum[1], sum[2], sum[3], Plus(), squares);
}

// The means of a batch from its sums.
HWY_INLINE void MeansOf(Batch& batch, std::size_t n) {
  const BatchTag wide;
  const FloatBatchTag narrow;
  const auto count = hn::Set(wide, static_cast<double>(n));
  for (std::size_t i = 0; i < kBatch; i += hn::Lanes(wide)) {
    const auto mean = hn::Div(hn::Load(wide, batch.sum + i), count);
    const auto high = hn::DemoteTo(narrow, mean);
    hn::Store(high, narrow, batch.high + i);
    hn::Store(hn::DemoteTo(narrow, hn::Sub(mean, hn::PromoteTo(wide, high))), narrow,
              batch.low + i);
  }
}

// Its factors 1 / sqrt(var + eps) from its squares.
HWY_INLINE void ScalesOf(Batch& batch, std::size_t n, double eps) {
  const BatchTag wide;
  const FloatBatchTag narrow;
  const auto one = hn::Set(narrow, 1.0f);
  batch.wide = false;
  for (std::size_t i = 0; i < kBatch; i += hn::Lanes(wide)) {
    const auto squares = hn::PromoteTo(wide, hn::Load(narrow, batch.squares + i));
    const auto variance = hn::Div(squares, hn::Set(wide, static_cast<double>(n)));
    const auto sum = hn::Add(variance, hn::Set(wide, eps));
    // Not true of NaN.
    const auto fits =
        hn::And(hn::Ge(sum, hn::Set(wide, 0x1p-120)), hn::Le(sum, hn::Set(wide, 0x1p120)));
    if (HWY_UNLIKELY(!hn::AllTrue(wide, fits))) batch.wide = true;
    const auto sigma = hn::Sqrt(sum);
    hn::Store(hn::Div(one, hn::DemoteTo(narrow, sigma)), narrow, batch.scale + i);
  }
}

// Rows from `begin` to `end` in batches: four rows are summed, four squared, four written, each of
// a batch that is one behind, so that nothing waits for a reduction across lanes; divisions and
// roots are shared by a batch. kStream: y, which is dense, goes past the caches. (Each row streamed
// on its own, with its ends, took a Zen 4 twice the time with 24 elements.)
template <bool kCentred, bool kStream, class Policy>
std::int64_t BatchedRows(const FloatRows& io, std::int64_t begin, std::int64_t end, std::size_t n,
                         double eps, Policy policy) {
  Batch ring[3];
  StreamedByL1<Tag, kTogether * kBatchedStreamed> lines(io.y + begin * io.y_stride);
  for (std::int64_t first = begin; first < end + 2 * kBatch; first += kBatch) {
    const std::int64_t turn = (first - begin) / kBatch;
    Batch& summed = ring[turn % 3];
    Batch& squared = ring[(turn + 2) % 3];
    Batch& written = ring[(turn + 1) % 3];
    if constexpr (kCentred) MeansOf(squared, n);
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
        if constexpr (kCentred) SumsOf(rows, n, summed.sum + i, Together());
      }
      const std::int64_t second = row - kBatch;
      if (second >= begin && second < end) {
        SquaresOf<kCentred>(Four(io, second, end), n, squared.high + i, squared.low + i,
                            squared.squares + i, Together());
      }
      const std::int64_t third = second - kBatch;
      if (third < begin || third >= end) continue;
      if (HWY_UNLIKELY(written.wide)) {
        if constexpr (kStream) lines.Close();
        return third;
      }
      const Mappings known = {written.high + i, written.low + i, written.scale + i};
      const std::int64_t count = std::min(kTogether, end - third);
      FloatRows four = io;
      four.x += third * io.x_stride;
      four.y = kStream ? lines.Room() : io.y_row(third);
      if (count == kTogether) {
        FinishTogether<kCentred>(four, 0, n, known, Together());
      } else {
        for (std::int64_t r = 0; r < count; ++r) {
          WriteElements<false>(Tag(), four.y_row(r), n,
                               ResultOf<kCentred>(four.x_row(r), io.gamma, io.beta, known[r]));
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
template <bool kCentred>
std::int64_t FloatShortRows(const FloatRows& io, std::int64_t begin, std::int64_t end,
                            std::size_t n, double eps) {
  std::int64_t done = begin;
  const bool side_by_side = WithSlots(io, n, [&](const auto& slots) ROOFLANE_LAMBDA {
    constexpr int vectors = std::decay_t<decltype(slots)>::kLanes;
    done = SlotRows<kCentred>(io, begin, end, n, eps, slots,
                              std::make_integer_sequence<int, vectors>());
  });
  if (side_by_side) return done;
  return BatchedRows<kCentred, false>(io, begin, end, n, eps, NoPrefetch());
}

// The same past the caches, of more than a vector, y dense.
template <bool kCentred>
std::int64_t StreamedBatches(const FloatRows& io, std::int64_t begin, std::int64_t end,
                             std::size_t n, double eps, Prefetch prefetch) {
  const void* last = io.last_before(end, n);
  const std::int64_t distance = kBatch * io.x_bytes();
  std::int64_t done = begin;
  switch (prefetch) {
    case Prefetch::pages:
      done = BatchedRows<kCentred, true>(io, begin, end, n, eps, PrefetchPages{last});
      break;
    case Prefetch::into_l2:
      done = BatchedRows<kCentred, true>(io, begin, end, n, eps, PrefetchIntoL2{distance, last});
      break;
    case Prefetch::into_l1:
      done = BatchedRows<kCentred, true>(io, begin, end, n, eps, PrefetchIntoL1{distance, last});
  }
  hwy::FlushStream();
  return done;
}

// The emulation needs no loops for short rows: without vectors nothing waits, and its conversion
// of an infinity is none.
inline constexpr bool kHasShortRows = HWY_TARGET != HWY_SCALAR;

// Whether rows of n elements are short: what follows takes them.
template <class Io>
bool is_short(const Io& io, std::size_t n, bool beyond_caches) {
  const bool dense = !Io::is_plain || io.y_stride == static_cast<std::int64_t>(n);
  if (!beyond_caches) return n <= kBatched;
  return n <= hn::Lanes(Tag()) || (n <= kBatchedStreamed && dense);
}

// Short rows from `begin` to `end`, up to the first that only double can compute.
template <bool kCentred, class Io>
std::int64_t ShortRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                       double eps, bool stream, Prefetch prefetch) {
  if constexpr (Io::is_plain) {
    if (!kStreams || !stream) return FloatShortRows<kCentred>(io, begin, end, n, eps);
    if (n > hn::Lanes(Tag())) return StreamedBatches<kCentred>(io, begin, end, n, eps, prefetch);
  }
  const auto ordinary = [&](FloatRows part, std::int64_t rows) HWY_ATTR {
    part.gamma = io.gamma;
    part.beta = io.beta;
    return FloatShortRows<kCentred>(part, 0, rows, n, eps);
  };
  return RowsByL1(io, begin, end, n, stream, prefetch == Prefetch::pages, ordinary);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
