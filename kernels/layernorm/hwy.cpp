// LayerNorm with Highway: memory is visited once where a row fits the cache (mean in
// double, squares, result, all on the cached row), twice where it does not (moments of blocks
// merged, then the result). No division per element. Short rows stay in registers, several to a
// vector. See layernorm.hpp for the maths and the sources.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/layernorm/layernorm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layernorm/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/slots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::size_t kBlock = common::row_block;
// x of three rows, y of one, gamma and beta of this length are 36 KiB and stay in a 48 KiB L1.
// (With 2048 elements, which fill it, this way was 6 to 19 % slower on a Zen 5, with 3000 24 %.)
constexpr std::size_t kPipelined = 1536;
// Up to this length, walking over a row three times costs less than waiting for its reductions.
// (On a Zen 5 both ways are equal between 97 and 128 elements, with AVX-512 and with AVX2.)
constexpr std::size_t kBatched = 96;
// The same beyond the caches, where memory likes rows that are fetched and written one by one.
constexpr std::size_t kBatchedFar = 48;
constexpr double kLargest = std::numeric_limits<float>::max();

// Σ(x - centre)² of n elements.
double SquaresAbout(const float* x, std::size_t n, float centre) {
  const Tag d;
  const Vector middle = hn::Set(d, centre);
  hc::LongSum<Tag> squares(d);
  hc::SumRow(d, squares, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Vector distance = hn::Sub(hc::LoadRow(d, x + i, fill, middle), middle);
    return hn::Mul(distance, distance);
  });
  return squares.Total(d);
}

// Moments of n > 0 elements from their sums. The mean is that of a sum in double: an element near
// it is only as good as the mean itself (a float32 sum, compensated or about a pivot, leaves
// u·sigma/sqrt(n) in the mean, many times the bound of an element that sits on it). Where the pivot
// is so far out, beyond 1.7 sigma, that taking its distance out of the squares would cost digits,
// the squares are taken again about the mean.
HWY_INLINE Moments MomentsFrom(const hc::RowSums& sums, const float* x, std::size_t n) {
  const auto count = static_cast<double>(n);
  const double mean = sums.sum / count;
  double lacking = mean - sums.pivot;
  double squares = sums.squares;
  // Not true of NaN, nor of a sum that overflowed about the pivot.
  const bool fit = lacking * lacking * count <= 0.75 * squares && squares <= kLargest;
  if (HWY_UNLIKELY(!fit)) {
    const auto near = static_cast<float>(mean);
    squares = SquaresAbout(x, n, near);
    lacking = mean - near;
  }
  return {static_cast<std::int64_t>(n), mean, squares - lacking * lacking * count};
}

// Moments of any number of elements: each block is read once.
Moments MomentsOf(const float* x, std::size_t n) {
  Moments whole;
  for (std::size_t i = 0; i < n; i += kBlock) {
    const std::size_t count = std::min(kBlock, n - i);
    whole = merge(whole, MomentsFrom(hc::SumAndSquares(x + i, count, nullptr), x + i, count));
  }
  return whole;
}

// What a row's elements are mapped with. The mean is a sum of two floats: x - high is exact where
// the mean dwarfs the deviations, and low is what high lacks.
struct Row {
  float high = 0, low = 0, scale = 0;
  Row() = default;
  Row(double mean, float scale_in)
      : high(static_cast<float>(mean)), low(static_cast<float>(mean - high)), scale(scale_in) {}
  Row(const Moments& moments, double eps) : Row(moments.mean, scale_of(moments, eps)) {}
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

// y = (x - mean) · scale · gamma + beta. kStream: past the caches, and by way of `seam` if there is
// one.
template <bool kStream>
void Finish(const float* x, const float* gamma, const float* beta, float* y, std::size_t n,
            const Row& row, hc::Seam<Tag>* seam = nullptr) {
  const Tag d;
  const Vector zero = hn::Zero(d);
  const Normalise normalise(row);
  const auto value = [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    return hn::MulAdd(normalise(hc::LoadRow(d, x + i, fill, zero)),
                      hc::LoadRow(d, gamma + i, fill, zero), hc::LoadRow(d, beta + i, fill, zero));
  };
  if (kStream && seam != nullptr) {
    hc::StreamRow(d, y, n, *seam, value);
  } else {
    hc::WriteRow<kStream>(d, y, n, value);
  }
}

// The same, and the sums of the n elements at `after`, vector by vector: conversions and additions
// of one row and loads, products and stores of the other share the units well. Fetches the n
// elements at `ahead` meanwhile: on a Zen 5 worth 4 to 9 % where rows come from L3, a loss of 3 %
// where they come from L2. (Fetching the next row of y, which stores will want, lost 4 to 14 %.)
HWY_INLINE hc::RowSums FinishAndSum(const float* x, const float* gamma, const float* beta, float* y,
                                    std::size_t n, const Row& row, const float* after,
                                    const float* ahead) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const Vector zero = hn::Zero(d);
  const Normalise normalise(row);
  const auto write = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Vector value =
        hn::MulAdd(normalise(hc::LoadRow(d, x + i, fill, zero)),
                   hc::LoadRow(d, gamma + i, fill, zero), hc::LoadRow(d, beta + i, fill, zero));
    hc::StoreRow(value, d, y + i, fill);
  };
  hc::RowVisit visit(after, n);
  std::size_t i = 0;
  while (i + 2 * lanes <= n) {
    for (const std::size_t stop = std::min(n, i + 64 * lanes); i + 2 * lanes <= stop;
         i += 2 * lanes) {
      hwy::Prefetch(ahead + i);
      hwy::Prefetch(ahead + i + lanes);
      visit.AddTwo(after + i, lanes);
      write(i, hc::Whole());
      write(i + lanes, hc::Whole());
    }
    visit.Settle();
  }
  const hc::RowSums sums = visit.End(after + i, n - i, lanes);
  if (i + lanes <= n) {
    write(i, hc::Whole());
    i += lanes;
  }
  if (i < n) write(i, hc::Part{n - i});
  return sums;
}

void FinishSlice(const float* x, const float* gamma, const float* beta, float* y, std::size_t n,
                 double mean, float scale, bool stream) {
  if (stream) {
    Finish<true>(x, gamma, beta, y, n, Row(mean, scale));
    hwy::FlushStream();
  } else {
    Finish<false>(x, gamma, beta, y, n, Row(mean, scale));
  }
}

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
constexpr std::int64_t kBatch = 8;
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

// Rows of at most kPipelined elements that stay in the caches, from `begin` to `end`. While a row
// is written, the row two after it is summed: what the sums of the row in between end in (adding up
// lanes, square root, divisions, some 100 cycles one after the other) is done meanwhile.
void PipelinedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                   double eps) {
  const auto x_of = [&](std::int64_t row) { return io.x + row * io.x_stride; };
  const auto row_at = [&](std::int64_t at) ROOFLANE_LAMBDA {
    return Row(MomentsFrom(hc::SumAndSquares(x_of(at), n, nullptr), x_of(at), n), eps);
  };
  Row now = row_at(begin);
  Row next = begin + 1 < end ? row_at(begin + 1) : now;
  for (std::int64_t at = begin; at < end; ++at) {
    float* y = io.y + at * io.y_stride;
    Row after = next;
    if (at + 2 < end) {
      const float* x = x_of(at + 2);
      after =
          Row(MomentsFrom(FinishAndSum(x_of(at), io.gamma, io.beta, y, n, now, x, x + io.x_stride),
                          x, n),
              eps);
    } else {
      Finish<false>(x_of(at), io.gamma, io.beta, y, n, now);
    }
    now = next;
    next = after;
  }
}

// y of a few rows, counted by R, from `at` on: gamma and beta are read once for all of them.
template <std::size_t... R>
HWY_INLINE void FinishTogether(const LayerNormOperands& io, std::int64_t at, std::size_t n,
                               const Row* rows, std::index_sequence<R...>) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const Vector zero = hn::Zero(d);
  const float* x[] = {io.x + (at + static_cast<std::int64_t>(R)) * io.x_stride...};
  float* y[] = {io.y + (at + static_cast<std::int64_t>(R)) * io.y_stride...};
  const Normalise normalise[] = {Normalise(rows[R])...};
  const auto write = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Vector gamma = hc::LoadRow(d, io.gamma + i, fill, zero);
    const Vector beta = hc::LoadRow(d, io.beta + i, fill, zero);
    (hc::StoreRow(hn::MulAdd(normalise[R](hc::LoadRow(d, x[R] + i, fill, zero)), gamma, beta), d,
                  y[R] + i, fill),
     ...);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) write(i, hc::Whole());
  if (i < n) write(i, hc::Part{n - i});
}

template <std::size_t kRows>
HWY_INLINE void RowGroup(const LayerNormOperands& io, std::int64_t at, std::size_t n, double eps) {
  Row rows[kRows];
  for (std::size_t i = 0; i < kRows; ++i) {
    const float* x = io.x + (at + static_cast<std::int64_t>(i)) * io.x_stride;
    rows[i] = Row(MomentsOf(x, n), eps);
  }
  FinishTogether(io, at, n, rows, std::make_index_sequence<kRows>());
}

// Rows of any length from `begin` to `end`, four together, or two where there are 16 registers.
// Each is visited twice.
void GroupedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                 double eps) {
  std::int64_t at = begin;
  if constexpr (HWY_TARGET <= HWY_AVX3) {
    for (; at + 4 <= end; at += 4) RowGroup<4>(io, at, n, eps);
  }
  for (; at + 2 <= end; at += 2) RowGroup<2>(io, at, n, eps);
  if (at < end) RowGroup<1>(io, at, n, eps);
}

// Rows of at most kBlock elements from `begin` to `end`, one after the other. Beyond the caches,
// the next row is fetched while this one is summed. (Fetching it while this one is written lost 24
// to 34 % on a Zen 5, and working on two rows in steps of some lines, as softmax does, 8 to 25 %.)
template <bool kStream>
void CachedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                double eps) {
  hc::Seam<Tag> seam((Tag()));
  for (std::int64_t at = begin; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    const float* ahead = kStream && at + 1 < end ? x + io.x_stride : nullptr;
    const Row row(MomentsFrom(hc::SumAndSquares(x, n, ahead), x, n), eps);
    Finish<kStream>(x, io.gamma, io.beta, io.y + at * io.y_stride, n, row, &seam);
  }
  seam.Close(Tag());
  if constexpr (kStream) hwy::FlushStream();
}

// Rows of any length from `begin` to `end`, each visited twice, y written past the caches.
void LongRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
              double eps) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    Finish<true>(x, io.gamma, io.beta, io.y + row * io.y_stride, n, Row(MomentsOf(x, n), eps));
  }
  hwy::FlushStream();
}

// Rows of at most kBatched elements from `begin` to `end`.
void ShortRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
               double eps) {
  const bool side_by_side = hc::WithSlots(io, n, [&](const auto& slots) ROOFLANE_LAMBDA {
    SlotRows(io, begin, end, n, static_cast<float>(eps), slots);
  });
  if (!side_by_side) BatchedRows<false>(io, begin, end, n, eps);
}

// The same past the caches.
void StreamedShortRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
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

// `far`: x and y lie beyond the caches. `stream`: so y is written past them, which it is not in
// place; that must not change its bits.
void Rows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
          double eps, bool far, bool stream) {
  const auto n = static_cast<std::size_t>(cols);
  // (Without vectors nothing waits, and there Highway's conversion of an infinity is not one.)
  if (n <= (far ? kBatchedFar : kBatched) && hn::MaxLanes(Tag()) > 1) {
    return stream ? StreamedShortRows(io, begin, end, n, eps) : ShortRows(io, begin, end, n, eps);
  }
  if (stream) {
    n <= kBlock ? CachedRows<true>(io, begin, end, n, eps) : LongRows(io, begin, end, n, eps);
  } else if (n >= grouped_from) {
    GroupedRows(io, begin, end, n, eps);
  } else {
    n <= kPipelined ? PipelinedRows(io, begin, end, n, eps)
                    : CachedRows<false>(io, begin, end, n, eps);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::layernorm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::layernorm {
namespace {

HWY_EXPORT(Rows);
HWY_EXPORT(MomentsOf);
HWY_EXPORT(FinishSlice);

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        eps_(problem.value("eps")),
        threads_(common::useful_threads(env.threads, rows_, cols_)),
        pool_(env.pool),
        tuning_(tuning),
        split_(tuning.get("split", 0) != 0),
        target_(resolve_isa(env.isa)),
        run_rows_(ROOFLANE_HWY_FUNCTION(Rows, target_)),
        moments_of_(ROOFLANE_HWY_FUNCTION(MomentsOf, target_)),
        finish_slice_(ROOFLANE_HWY_FUNCTION(FinishSlice, target_)) {
    if (split_) {
      threads_ = std::max(env.threads, 1);
      moments_.resize(2 * static_cast<std::size_t>(threads_));
    }
  }

  void run() override {
    if (split_) {
      run_split();
      return;
    }
    const std::int64_t group = cols_ >= static_cast<std::int64_t>(grouped_from) ? 4 : 1;
    common::for_rows(pool_, threads_, rows_, cols_, group, [&](common::RowRange rows, int) {
      run_rows_(io_, rows.begin, rows.end, cols_, eps_, far_, stream_);
    });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    facts.workspace_bytes = moments_.size() * sizeof(moments_[0]);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = LayerNormOperands(operands);
    // In place the line is in cache already, and an ordinary store costs no further read.
    far_ = tuning_.get("stream", 0) != 0;
    stream_ = far_ && io_.x != io_.y;
  }

 private:
  // Every row is cut into one part per thread planned; the parts' moments meet once a row. A thread
  // may be one row ahead of another, hence two sets of them.
  void run_split() {
    const int parts = threads_;
    parallel_region(pool_, threads_, [&](const Team& team) {
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float* x = io_.x + row * io_.x_stride;
        float* y = io_.y + row * io_.y_stride;
        Shared* shared = moments_.data() + (row % 2) * parts;
        for (int part = team.thread; part < parts; part += team.threads) {
          const common::Slice slice = common::slice_of_row(cols_, part, parts);
          shared[part].moments = moments_of_(x + slice.begin, slice.count());
        }
        team.barrier();
        Moments whole;
        for (int part = 0; part < parts; ++part) whole = merge(whole, shared[part].moments);
        const float scale = scale_of(whole, eps_);
        for (int part = team.thread; part < parts; part += team.threads) {
          const common::Slice slice = common::slice_of_row(cols_, part, parts);
          finish_slice_(x + slice.begin, io_.gamma + slice.begin, io_.beta + slice.begin,
                        y + slice.begin, slice.count(), whole.mean, scale, stream_);
        }
      }
    });
  }

  struct alignas(64) Shared {  // a cache line each: written by different threads
    Moments moments;
  };

  std::int64_t rows_;
  std::int64_t cols_;
  double eps_;
  int threads_;
  Pool* pool_;
  Tuning tuning_;
  bool split_;
  bool far_ = false;
  bool stream_ = false;
  std::int64_t target_;
  decltype(&HWY_STATIC_DISPATCH(Rows)) run_rows_;
  decltype(&HWY_STATIC_DISPATCH(MomentsOf)) moments_of_;
  decltype(&HWY_STATIC_DISPATCH(FinishSlice)) finish_slice_;
  std::vector<Shared> moments_;
  LayerNormOperands io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  return std::make_unique<HwyPlan>(problem, complete_tuning(hwy, problem, env, tuning), env);
}

}  // namespace

const Variant hwy = {
    .name = "hwy",
    .kernel = &kernel,
    .backend = "highway",
    .threads = Threads::many,
    .tunables = common::row_tunables,
    .unsupported = other_math,
    .tunings = common::row_tunings,
    .plan = plan,
    .ladder = ladder,
};

}  // namespace rooflane::layernorm
#endif  // HWY_ONCE
