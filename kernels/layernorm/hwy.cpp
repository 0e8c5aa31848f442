// LayerNorm with Highway: memory is visited once where a row fits the cache (mean in
// double, squares, result, all on the cached row), twice where it does not (moments of blocks
// merged, then the result). No division per element. Short rows stay in registers, several to a
// vector. See layernorm.hpp for the maths and the sources.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/converted_rows.hpp"
#include "kernels/common/rows_schedule.hpp"
#include "kernels/layernorm/layernorm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layernorm/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/layernorm/moments-inl.h"
#include "kernels/layernorm/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm {
namespace HWY_NAMESPACE {

// Rows that stay in L1 while PipelinedRows works on them: x of three, y of one, gamma and beta take
// no more than three quarters of it. (With 2048 elements, which fill 48 KiB, that was 6 to 19 %
// slower on a Zen 5 than one row after the other, with 3000 24 %; on a Zen 4 of 32 KiB 16 % with
// 1536.) By halves one after the other is faster sooner: 0.93 to 0.95 with 300 to 512 elements,
// 1.00 with 640, 1.05 or more with 1024.
template <bool kHalves>
bool pipelined(std::size_t n) {
  return (kHalves ? 40 : 32) * n <= machine().l1d_bytes;
}

// What Finish gives, and the sums of the n elements at `after`, vector by vector: conversions and
// additions of one row and loads, products and stores of the other share the units well. Prefetches
// the n elements at `upcoming` meanwhile: on a Zen 5 worth 4 to 9 % where rows come from L3, a loss
// of 3 % where they come from L2. (Prefetching the next row of y, which stores will want, lost 4 to
// 14
// %.)
HWY_INLINE hc::RowSums FinishAndSum(const float* x, const float* gamma, const float* beta, float* y,
                                    std::size_t n, const Row& row, const float* after,
                                    const float* upcoming) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto result = ResultOf(x, gamma, beta, row);
  const auto write = [&](std::size_t i, auto fill)
                         ROOFLANE_LAMBDA { hc::StoreRow(result(i, fill), d, y + i, fill); };
  hc::RowVisit<hc::WholeSummer> visit(after, n);
  std::size_t i = 0;
  while (i + 2 * lanes <= n) {
    for (const std::size_t stop = std::min(n, i + 64 * lanes); i + 2 * lanes <= stop;
         i += 2 * lanes) {
      hwy::Prefetch(upcoming + i);
      hwy::Prefetch(upcoming + i + lanes);
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

// Rows that stay in L1 (see pipelined), from `begin` to `end`. While a row
// is written, the row two after it is summed: what the sums of the row in between end in (adding up
// lanes, square root, divisions, some 100 cycles one after the other) is done meanwhile.
void PipelinedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                   double eps) {
  const auto x_of = [&](std::int64_t row) { return io.x + row * io.x_stride; };
  const auto row_at = [&](std::int64_t at) ROOFLANE_LAMBDA {
    const float* x = x_of(at);
    return Row(MomentsFrom(hc::SumAndSquares<false>(x, n, common::NoPrefetch()), x, n), eps);
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

template <std::size_t kRows, bool kHalves>
HWY_INLINE void RowGroup(const LayerNormOperands& io, std::int64_t at, std::size_t n, double eps) {
  Row rows[kRows];
  for (std::size_t i = 0; i < kRows; ++i) {
    const float* x = io.x + (at + static_cast<std::int64_t>(i)) * io.x_stride;
    rows[i] = Row(MomentsOfBlocks<kHalves>(x, n, false), eps);
  }
  FinishTogether(io, at, n, rows, std::make_index_sequence<kRows>());
}

// Rows of any length from `begin` to `end`, four together, or two where there are 16 registers.
// Each is visited twice.
template <bool kHalves>
void GroupedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                 double eps) {
  std::int64_t at = begin;
  if constexpr (HWY_TARGET <= HWY_AVX3) {
    for (; at + 4 <= end; at += 4) RowGroup<4, kHalves>(io, at, n, eps);
  }
  for (; at + 2 <= end; at += 2) RowGroup<2, kHalves>(io, at, n, eps);
  if (at < end) RowGroup<1, kHalves>(io, at, n, eps);
}

// Rows of at most kBlock elements from `begin` to `end`, one after the other. Beyond the caches,
// what `policy` says is prefetched while a row is summed. (Prefetching it while it is written lost
// 24 to 34 % on a Zen 5.)
template <bool kStream, bool kHalves, class Policy>
void CachedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                double eps, Policy policy) {
  hc::StoreCarry<Tag> carry((Tag()));
  for (std::int64_t at = begin; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    const Row row(MomentsFrom(hc::SumAndSquares<kHalves>(x, n, policy), x, n), eps);
    Finish<kStream>(x, io.gamma, io.beta, io.y + at * io.y_stride, n, row, &carry);
  }
  carry.Close(Tag());
  if constexpr (kStream) hwy::FlushStream();
}

// Rows in the caches, from `begin` to `end`.
template <bool kHalves>
void InCacheRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
                 double eps) {
  if (grouped(n)) {
    GroupedRows<kHalves>(io, begin, end, n, eps);
  } else if (pipelined<kHalves>(n)) {
    PipelinedRows(io, begin, end, n, eps);
  } else {
    CachedRows<false, kHalves>(io, begin, end, n, eps, common::NoPrefetch());
  }
}

// Rows beyond the caches of which four stay in L2, from `begin` to `end`. In steps, while a row is
// summed and what comes is prefetched into L2, the row before it is written: each line that is
// asked for meets one that is written. (With lines prefetched into L1, as CachedRows does, a Zen 5
// lost 8 to 25 % so.)
template <class Policy>
void InterleavedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                     std::size_t n, double eps, Policy policy) {
  const Tag d;
  hc::StoreCarry<Tag> carry(d);
  const auto write = [&](std::int64_t at, std::size_t count, const Row& row) ROOFLANE_LAMBDA {
    return hc::InterleavedStream(d, io.y + at * io.y_stride, count, carry,
                                 ResultOf(io.x + at * io.x_stride, io.gamma, io.beta, row));
  };
  Row row;
  for (std::int64_t at = begin; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    auto before = at == begin ? write(at, 0, row) : write(at - 1, n, row);  // 0: none yet
    Moments whole;
    for (std::size_t block = 0; block < n; block += kBlock) {
      const std::size_t count = std::min(kBlock, n - block);
      const hc::RowSums sums = hc::SumAndSquares<false>(
          x + block, count, policy,
          [&](std::size_t summed) ROOFLANE_LAMBDA { before.EightUpTo(block + summed); });
      whole = merge(whole, MomentsFrom(sums, x + block, count));
    }
    before.UpTo(n);
    row = Row(whole, eps);
  }
  write(end - 1, n, row).UpTo(n);
  carry.Close(d);
  hwy::FlushStream();
}

// Rows of any length from `begin` to `end`, each visited twice, y written past the caches.
void LongRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
              double eps, bool pages) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    const Row moments(MomentsOfBlocks<false>(x, n, pages), eps);
    Finish<true>(x, io.gamma, io.beta, io.y + row * io.y_stride, n, moments);
  }
  hwy::FlushStream();
}

// `beyond_caches`: x and y lie beyond the caches. `stream`: so y is written past them, which it is
// not in place; that must not change its bits.
void Rows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
          double eps, bool beyond_caches, bool stream, bool halves, common::Prefetch prefetch) {
  const auto n = static_cast<std::size_t>(cols);
  const bool pages = prefetch == common::Prefetch::pages;
  const bool dense = io.y_stride == cols;
  const bool batched =
      beyond_caches ? n <= hn::Lanes(Tag()) || (n <= kBatchedStreamed && dense) : n <= kBatched;
  // (Without vectors nothing waits, and there Highway's conversion of an infinity is not one.)
  if (batched && hn::MaxLanes(Tag()) > 1) {
    return stream ? StreamedShortRows(io, begin, end, n, eps, prefetch)
                  : ShortRows(io, begin, end, n, eps);
  }
  const float* last = common::last_of_rows(io, end, n);
  const common::PrefetchPages from_pages = {last};
  const common::PrefetchIntoL2 into_l2 = {common::prefetch_distance(n, io.x_stride), last};
  if (!stream) {
    if constexpr (HWY_TARGET <= HWY_AVX3) {
      if (halves) return InCacheRows<true>(io, begin, end, n, eps);
    }
    InCacheRows<false>(io, begin, end, n, eps);
  } else if (pages && common::keeps_four_rows(cols)) {
    InterleavedRows(io, begin, end, n, eps, from_pages);
  } else if (n > kBlock) {
    LongRows(io, begin, end, n, eps, pages);
  } else if (prefetch == common::Prefetch::into_l1) {
    CachedRows<true, false>(io, begin, end, n, eps, common::PrefetchIntoL1{io.x_stride, last});
  } else if (common::keeps_three_rows_in_l1(machine(), cols)) {
    InterleavedRows(io, begin, end, n, eps, into_l2);
  } else {
    CachedRows<true, false>(io, begin, end, n, eps, into_l2);
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
        threads_(common::RowSchedule(tuning).threads),
        pool_(env.pool),
        tuning_(tuning),
        split_(tuning.get("split", 0) != 0),
        target_(resolve_isa(env.isa)),
        halves_(common::halves_vectors(isa_name(target_))),
        run_rows_(ROOFLANE_HWY_FUNCTION(Rows, target_)),
        moments_of_(ROOFLANE_HWY_FUNCTION(MomentsOf, target_)),
        finish_slice_(ROOFLANE_HWY_FUNCTION(FinishSlice, target_)) {
    if (split_) {
      moments_.resize(2 * static_cast<std::size_t>(threads_));
    }
  }

  void run() override {
    if (split_) {
      run_split();
      return;
    }
    const std::int64_t group = grouped(static_cast<std::size_t>(cols_)) ? 4 : 1;
    common::for_rows(pool_, threads_, rows_, cols_, group, [&](common::RowRange rows, int) {
      run_rows_(io_, rows.begin, rows.end, cols_, eps_, beyond_caches_, stream_, halves_,
                prefetch_);
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
    beyond_caches_ = tuning_.get("stream", 0) != 0;
    stream_ = beyond_caches_ && io_.x != io_.y;
    prefetch_ = common::prefetch_of(tuning_, rows_, cols_, io_.x_stride);
  }

 private:
  // Every row is cut into one part per thread planned; the parts' moments meet once a row. A thread
  // may be one row ahead of another, hence two sets of them.
  void run_split() {
    const int parts = threads_;
    const bool pages = prefetch_ == common::Prefetch::pages;
    parallel_region(pool_, threads_, [&](const Team& team) {
      for (std::int64_t row = 0; row < rows_; ++row) {
        const float* x = io_.x + row * io_.x_stride;
        float* y = io_.y + row * io_.y_stride;
        Shared* shared = moments_.data() + (row % 2) * parts;
        for (int part = team.thread; part < parts; part += team.threads) {
          const common::Slice slice = common::slice_of_row(cols_, part, parts);
          shared[part].moments = moments_of_(x + slice.begin, slice.count(), pages);
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
  bool beyond_caches_ = false;
  bool stream_ = false;
  common::Prefetch prefetch_ = common::Prefetch::into_l1;
  std::int64_t target_;
  bool halves_;
  decltype(&HWY_STATIC_DISPATCH(Rows)) run_rows_;
  decltype(&HWY_STATIC_DISPATCH(MomentsOf)) moments_of_;
  decltype(&HWY_STATIC_DISPATCH(FinishSlice)) finish_slice_;
  std::vector<Shared> moments_;
  LayerNormOperands io_;
};

// Whether rows are worked on where they lie. Else some are made float32, with the residual, in a
// block that stays in cache.
bool is_direct(const Problem& problem) {
  return problem.dtype("type") == &float32 && !problem.flag("residual");
}

constexpr common::RowWork row_work = {
    .vector_ops = 11.5, .row_ops = 40, .short_ops = 2.4, .long_rows = common::Prefetch::into_l2};

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
    .ladder = ladder,
    .dtypes = float_types,
};

}  // namespace rooflane::layernorm
#endif  // HWY_ONCE
