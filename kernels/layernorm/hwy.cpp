// LayerNorm with Highway: memory is visited once where a row fits the cache (mean in
// double, squares, result, all on the cached row), twice where it does not (moments of blocks
// merged, then the result). No division per element. Rows narrower than a vector run one row per
// lane. See layernorm.hpp for the maths and the sources.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
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

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::size_t kBlock = common::row_block;
// x of three rows, y of one, gamma and beta of this length are 36 KiB and stay in a 48 KiB L1.
// (With 2048 elements, which fill it, this way was 6 % slower on a Zen 5.)
constexpr std::size_t kShort = 1536;
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
  float high, low, scale;
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

// y = (x - mean) · scale · gamma + beta.
template <bool kStream>
void Finish(const float* x, const float* gamma, const float* beta, float* y, std::size_t n,
            const Row& row) {
  const Tag d;
  const Vector zero = hn::Zero(d);
  const Normalise normalise(row);
  hc::WriteRow<kStream>(d, y, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    return hn::MulAdd(normalise(hc::LoadRow(d, x + i, fill, zero)),
                      hc::LoadRow(d, gamma + i, fill, zero), hc::LoadRow(d, beta + i, fill, zero));
  });
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

// Rows narrower than a vector: lane r works on row r, so that no lane is idle and nothing is
// reduced across lanes. `rows` is at most the number of lanes. The same steps as BlockMoments and
// Finish.
void NarrowRows(const LayerNormOperands& io, std::size_t rows, std::size_t cols, float eps) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto from = hc::RowOffsets(d, rows, static_cast<std::size_t>(io.x_stride));
  const auto to = hc::RowOffsets(d, rows, static_cast<std::size_t>(io.y_stride));
  HWY_ALIGN float x[hn::MaxLanes(Tag()) * hn::MaxLanes(Tag())];
  for (std::size_t j = 0; j < cols; ++j) {
    hn::Store(hn::GatherIndex(d, io.x + j, from), d, x + j * lanes);
  }
  // Means in double, as many rows at a time as there are lanes of it; kept as two floats.
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  HWY_ALIGN float mean_high[hn::MaxLanes(Tag())];
  HWY_ALIGN float mean_low[hn::MaxLanes(Tag())];
  for (std::size_t row = 0; row < lanes; row += hn::Lanes(dd)) {
    auto sum = hn::Zero(dd);
    for (std::size_t j = 0; j < cols; ++j) {
      sum = hn::Add(sum, hn::PromoteTo(dd, hn::Load(df, x + j * lanes + row)));
    }
    const auto mean = hn::Div(sum, hn::Set(dd, static_cast<double>(cols)));
    const auto near = hn::DemoteTo(df, mean);
    hn::Store(near, df, mean_high + row);
    hn::Store(hn::DemoteTo(df, hn::Sub(mean, hn::PromoteTo(dd, near))), df, mean_low + row);
  }
  const Vector high = hn::Load(d, mean_high);
  const Vector low = hn::Load(d, mean_low);
  const Vector count = hn::Set(d, static_cast<float>(cols));
  hc::LongSum<Tag> squares(d);
  for (std::size_t j = 0; j < cols; ++j) {
    const Vector distance = hn::Sub(hn::Load(d, x + j * lanes), high);
    squares.Add(hn::Mul(distance, distance));
  }
  const Vector variance = hn::NegMulAdd(low, low, hn::Div(squares.PerLane(), count));
  const Vector scale = hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::Add(variance, hn::Set(d, eps))));
  // Lanes beyond `rows` hold the last row once more and write the same bits to the same place.
  for (std::size_t j = 0; j < cols; ++j) {
    const Vector centred = hn::Sub(hn::Sub(hn::Load(d, x + j * lanes), high), low);
    const Vector y =
        hn::MulAdd(hn::Mul(centred, scale), hn::Set(d, io.gamma[j]), hn::Set(d, io.beta[j]));
    hn::ScatterIndex(y, d, io.y + j, to);
  }
}

// Rows of at most kShort elements that stay in the caches, from `begin` to `end`. While a row is
// written, the row two after it is summed: what the sums of the row in between end in (adding up
// lanes, square root, divisions, some 100 cycles one after the other) is done meanwhile.
void ShortRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
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

// Rows of at most kBlock elements from `begin` to `end`, one after the other. Beyond the caches,
// the next row is fetched while this one is summed. (Fetching it while this one is written lost 24
// to 34 % on a Zen 5, and working on two rows in steps of some lines, as softmax does, 8 to 25 %.)
template <bool kStream>
void CachedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                double eps) {
  for (std::int64_t at = begin; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    const float* ahead = kStream && at + 1 < end ? x + io.x_stride : nullptr;
    const Row row(MomentsFrom(hc::SumAndSquares(x, n, ahead), x, n), eps);
    Finish<kStream>(x, io.gamma, io.beta, io.y + at * io.y_stride, n, row);
  }
  if constexpr (kStream) hwy::FlushStream();
}

// Rows of any length from `begin` to `end`, each visited twice.
template <bool kStream>
void LongRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
              double eps) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    Finish<kStream>(x, io.gamma, io.beta, io.y + row * io.y_stride, n, Row(MomentsOf(x, n), eps));
  }
  if constexpr (kStream) hwy::FlushStream();
}

void Rows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
          double eps, bool stream) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Tag()));
  if (cols < lanes && common::offsets_fit(io, lanes)) {
    for (std::int64_t row = begin; row < end; row += lanes) {
      LayerNormOperands group = io;
      group.x += row * io.x_stride;
      group.y += row * io.y_stride;
      NarrowRows(group, static_cast<std::size_t>(std::min(lanes, end - row)),
                 static_cast<std::size_t>(cols), static_cast<float>(eps));
    }
    return;
  }
  const auto n = static_cast<std::size_t>(cols);
  if (n > kBlock) {
    stream ? LongRows<true>(io, begin, end, n, eps) : LongRows<false>(io, begin, end, n, eps);
  } else if (stream) {
    CachedRows<true>(io, begin, end, n, eps);
  } else {
    n <= kShort ? ShortRows(io, begin, end, n, eps) : CachedRows<false>(io, begin, end, n, eps);
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
    common::for_rows(pool_, threads_, rows_, cols_, [&](common::RowRange rows, int) {
      run_rows_(io_, rows.begin, rows.end, cols_, eps_, stream_);
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
    stream_ = tuning_.get("stream", 0) != 0 && io_.x != io_.y;
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
