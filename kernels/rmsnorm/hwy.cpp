// RMSNorm with Highway: the sum of a row's squares, then the row again, from cache where it fits,
// as the result. No division per element. How rows are shared among threads, and what is
// prefetched: kernels/common/rows.hpp. See rmsnorm.hpp for the maths.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/converted_rows.hpp"
#include "kernels/common/rows_schedule.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rmsnorm/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::rmsnorm {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using V = hn::Vec<Tag>;

// Sums of squares of eight vectors at a time, each in a vector of its own: two multiply-adds a
// cycle of four cycles' latency.
struct EightSums {
  V s0, s1, s2, s3, s4, s5, s6, s7;

  HWY_INLINE EightSums() { Clear(); }
  HWY_INLINE void Clear() { s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = hn::Zero(Tag()); }
  template <class Policy>
  HWY_INLINE void Add(const float* p, std::size_t lanes, Policy policy) {
    const auto add = [&](V& sum, const float* at) ROOFLANE_LAMBDA {
      policy(at);
      const V x = hn::LoadU(Tag(), at);
      sum = hn::MulAdd(x, x, sum);
    };
    add(s0, p);
    add(s1, p + lanes);
    add(s2, p + 2 * lanes);
    add(s3, p + 3 * lanes);
    add(s4, p + 4 * lanes);
    add(s5, p + 5 * lanes);
    add(s6, p + 6 * lanes);
    add(s7, p + 7 * lanes);
  }
  HWY_INLINE V Total() const {
    return hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                   hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  }
};

// The sum of the squares of n elements; relative error below (40 + n/8192)·u, since no lane adds
// more than 64 of them before it is added to a total. `policy` as in prefetch.hpp. After every
// eight vectors after_eight(elements so far) is called.
template <class Policy, class AfterEight>
HWY_INLINE double SumOfSquares(const float* x, std::size_t n, Policy policy,
                               AfterEight after_eight) {
  const Tag d;
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
    const V even = hn::LoadU(d, x + i), odd = hn::LoadU(d, x + i + lanes);
    policy(x + i);
    policy(x + i + lanes);
    total = hn::MulAdd(even, even, total);
    rest = hn::MulAdd(odd, odd, rest);
  }
  for (; i < n; i += lanes) {
    policy(x + i);
    const V last = i + lanes <= n ? V(hn::LoadU(d, x + i)) : hc::LoadRow(d, x + i, hc::Part{n - i});
    rest = hn::MulAdd(last, last, rest);
  }
  return static_cast<double>(hc::SumLanes(d, hn::Add(total, rest)));
}

template <class Policy>
HWY_INLINE double SumOfSquares(const float* x, std::size_t n, Policy policy) {
  return SumOfSquares(x, n, policy, [](std::size_t) ROOFLANE_LAMBDA {});
}

// y's vector at i: x·scale·gamma.
HWY_INLINE auto ResultOf(const float* x, const float* gamma, float scale) {
  const V factor = hn::Set(Tag(), scale);
  return [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const Tag d;
    const V scaled = hn::Mul(hc::LoadRow(d, x + i, fill), factor);
    return hn::Mul(scaled, hc::LoadRow(d, gamma + i, fill));
  };
}

double SquaresOf(const float* x, std::size_t n, bool pages) {
  if (pages) return SumOfSquares(x, n, common::PrefetchPages{common::last_of(x, n)});
  return SumOfSquares(x, n, common::NoPrefetch());
}

void FinishSlice(const float* x, const float* gamma, float* y, std::size_t n, float scale,
                 bool stream) {
  if (stream) {
    hc::WriteRow<true>(Tag(), y, n, ResultOf(x, gamma, scale));
    hwy::FlushStream();
  } else {
    hc::WriteRow<false>(Tag(), y, n, ResultOf(x, gamma, scale));
  }
}

// Rows from `begin` to `end`, one after the other. Beyond the caches, what `policy` says is
// prefetched while a row is summed.
template <bool kStream, class Policy>
void CachedRows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                double eps, Policy policy) {
  const Tag d;
  hc::StoreCarry<Tag> carry(d);
  for (std::int64_t at = begin; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    float* y = io.y + at * io.y_stride;
    const float scale = scale_of(SumOfSquares(x, n, policy), static_cast<std::int64_t>(n), eps);
    if constexpr (kStream) {
      hc::StreamRow(d, y, n, carry, ResultOf(x, io.gamma, scale));
    } else {
      hc::WriteRow<false>(d, y, n, ResultOf(x, io.gamma, scale));
    }
  }
  carry.Close(d);
  if constexpr (kStream) hwy::FlushStream();
}

// Rows beyond the caches of which four stay in L2, from `begin` to `end`. In steps, while a row is
// summed and what comes is prefetched into L2, the row before it is written.
template <class Policy>
void InterleavedRows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                     double eps, Policy policy) {
  const Tag d;
  hc::StoreCarry<Tag> carry(d);
  const auto write = [&](std::int64_t at, std::size_t count, float scale) ROOFLANE_LAMBDA {
    return hc::InterleavedStream(d, io.y + at * io.y_stride, count, carry,
                                 ResultOf(io.x + at * io.x_stride, io.gamma, scale));
  };
  float scale = 0;
  for (std::int64_t at = begin; at < end; ++at) {
    auto before = at == begin ? write(at, 0, scale) : write(at - 1, n, scale);  // 0: none yet
    const double squares =
        SumOfSquares(io.x + at * io.x_stride, n, policy,
                     [&](std::size_t summed) ROOFLANE_LAMBDA { before.EightUpTo(summed); });
    before.UpTo(n);
    scale = scale_of(squares, static_cast<std::int64_t>(n), eps);
  }
  write(end - 1, n, scale).UpTo(n);
  carry.Close(d);
  hwy::FlushStream();
}

// Rows of any length from `begin` to `end`, each visited twice, y written past the caches.
void LongRows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
              double eps, bool pages) {
  for (std::int64_t at = begin; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    const float scale = scale_of(SquaresOf(x, n, pages), static_cast<std::int64_t>(n), eps);
    hc::WriteRow<true>(Tag(), io.y + at * io.y_stride, n, ResultOf(x, io.gamma, scale));
  }
  hwy::FlushStream();
}

// `stream`: y is written past the caches. Which of the ways past them is the faster where: as
// LayerNorm's, whose loops differ only in what they sum.
void Rows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
          double eps, bool stream, common::Prefetch prefetch) {
  const auto n = static_cast<std::size_t>(cols);
  if (!stream) return CachedRows<false>(io, begin, end, n, eps, common::NoPrefetch());
  const bool pages = prefetch == common::Prefetch::pages;
  const float* last = common::last_of_rows(io, end, n);
  const common::PrefetchIntoL2 into_l2 = {common::prefetch_distance(n, io.x_stride), last};
  if (pages && common::keeps_four_rows(cols)) {
    InterleavedRows(io, begin, end, n, eps, common::PrefetchPages{last});
  } else if (cols > common::row_block) {
    LongRows(io, begin, end, n, eps, pages);
  } else if (prefetch == common::Prefetch::into_l1) {
    CachedRows<true>(io, begin, end, n, eps, common::PrefetchIntoL1{into_l2.distance, last});
  } else if (common::keeps_three_rows_in_l1(machine(), cols)) {
    InterleavedRows(io, begin, end, n, eps, into_l2);
  } else {
    CachedRows<true>(io, begin, end, n, eps, into_l2);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::rmsnorm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::rmsnorm {
namespace {

HWY_EXPORT(Rows);
HWY_EXPORT(SquaresOf);
HWY_EXPORT(FinishSlice);

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        eps_(problem.value("eps")),
        threads_(common::RowSchedule(tuning).threads),
        pool_(env.pool),
        tuning_(tuning),
        split_(tuning.get("split", 0) != 0),
        target_(resolve_isa(env.isa)),
        run_rows_(ROOFLANE_HWY_FUNCTION(Rows, target_)),
        squares_of_(ROOFLANE_HWY_FUNCTION(SquaresOf, target_)),
        finish_slice_(ROOFLANE_HWY_FUNCTION(FinishSlice, target_)) {
    if (split_) shared_.resize(2 * static_cast<std::size_t>(threads_));
  }

  void run() override {
    if (split_) return run_split();
    common::for_rows(pool_, threads_, rows_, cols_, 1, [&](common::RowRange rows, int) {
      run_rows_(io_, rows.begin, rows.end, cols_, eps_, stream_, prefetch_);
    });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    facts.workspace_bytes = shared_.size() * sizeof(shared_[0]);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = RmsNormOperands(operands);
    // In place the line is in cache already, and an ordinary store costs no further read.
    stream_ = tuning_.get("stream", 0) != 0 && io_.x != io_.y;
    prefetch_ = common::prefetch_of(tuning_, rows_, cols_, io_.x_stride);
  }

 private:
  struct alignas(64) Shared {  // a cache line each: written by different threads
    double squares;
  };

  // Every row is cut into one part per thread planned; the parts' sums meet once a row. A thread
  // may be one row ahead of another, hence two sets of them.
  void run_split() {
    const int parts = threads_;
    const bool pages = prefetch_ == common::Prefetch::pages;
    parallel_region(pool_, threads_, [&](const Team& team) {
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float* x = io_.x + row * io_.x_stride;
        float* y = io_.y + row * io_.y_stride;
        Shared* shared = shared_.data() + (row % 2) * parts;
        for (int part = team.thread; part < parts; part += team.threads) {
          const common::Slice slice = common::slice_of_row(cols_, part, parts);
          shared[part].squares = squares_of_(x + slice.begin, slice.count(), pages);
        }
        team.barrier();
        double squares = 0;
        for (int part = 0; part < parts; ++part) squares += shared[part].squares;
        const float scale = scale_of(squares, cols_, eps_);
        for (int part = team.thread; part < parts; part += team.threads) {
          const common::Slice slice = common::slice_of_row(cols_, part, parts);
          finish_slice_(x + slice.begin, io_.gamma + slice.begin, y + slice.begin, slice.count(),
                        scale, stream_);
        }
      }
    });
  }

  std::int64_t rows_;
  std::int64_t cols_;
  double eps_;
  int threads_;
  Pool* pool_;
  Tuning tuning_;
  bool split_;
  bool stream_ = false;
  common::Prefetch prefetch_ = common::Prefetch::into_l1;
  std::int64_t target_;
  decltype(&HWY_STATIC_DISPATCH(Rows)) run_rows_;
  decltype(&HWY_STATIC_DISPATCH(SquaresOf)) squares_of_;
  decltype(&HWY_STATIC_DISPATCH(FinishSlice)) finish_slice_;
  std::vector<Shared> shared_;
  RmsNormOperands io_;
};

// Whether rows are worked on where they lie. Else some are made float32, with the residual, in a
// block that stays in cache.
bool is_direct(const Problem& problem) {
  return problem.dtype("type") == &float32 && !problem.flag("residual");
}

constexpr common::RowWork row_work = {
    .vector_ops = 8, .row_ops = 40, .short_ops = 0, .long_rows = common::Prefetch::into_l2};

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  if (!is_direct(problem)) return common::converted_row_tunings(problem, env, row_work);
  return common::row_tunings(problem, env, row_work);
}

double predicted_seconds(const Problem& problem, const Tuning& tuning, const Environment& env) {
  return common::predicted_row_seconds(problem, tuning, env, row_work);
}

std::unique_ptr<Plan> float_plan(const Problem& problem, const Tuning& tuning,
                                 const Environment& env) {
  return std::make_unique<HwyPlan>(problem, tuning, env);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  const Tuning complete = complete_tuning(hwy, problem, env, tuning);
  if (is_direct(problem)) return float_plan(problem, complete, env);
  return common::converted_rows(problem, complete, env, float_plan);
}

}  // namespace

const Variant hwy = {
    .name = "hwy",
    .kernel = &kernel,
    .backend = &highway::backend,
    .threads = Threads::many,
    .tunables = common::row_tunables,
    .unsupported = nullptr,
    .tunings = tunings,
    .plan = plan,
    .tuning_defect = common::threads_defect,
    .predicted_seconds = predicted_seconds,
    .dtypes = float_types,
};

}  // namespace rooflane::rmsnorm
#endif  // HWY_ONCE
