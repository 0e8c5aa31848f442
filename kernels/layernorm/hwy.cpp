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
#include "kernels/common/row_plan.hpp"
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
                 double mean, double scale, bool stream) {
  const Row row(mean, scale);
  if (!common::float_writes(mean, scale)) {
    hc::WriteInDouble(x, gamma, beta, y, n, mean, scale);
  } else if (stream) {
    Finish<true>(x, gamma, beta, y, n, row);
    hwy::FlushStream();
  } else {
    Finish<false>(x, gamma, beta, y, n, row);
  }
}

// Rows that stay in L1 (see pipelined), from `begin` to `end`. While a row
// is written, the row two after it is summed: what the sums of the row in between end in (adding up
// lanes, square root, divisions, some 100 cycles one after the other) is done meanwhile.
std::int64_t PipelinedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                           std::size_t n, double eps) {
  const auto x_of = [&](std::int64_t row) { return io.x + row * io.x_stride; };
  const auto row_at = [&](std::int64_t at) ROOFLANE_LAMBDA {
    const float* x = x_of(at);
    return Row(MomentsFrom(hc::SumAndSquares<false>(x, n, common::NoPrefetch()), x, n, eps), eps);
  };
  Row now = row_at(begin);
  Row next = begin + 1 < end ? row_at(begin + 1) : now;
  for (std::int64_t at = begin; at < end; ++at) {
    float* y = io.y + at * io.y_stride;
    Row after = next;
    if (HWY_UNLIKELY(now.wide)) return at;
    if (at + 2 < end) {
      const float* x = x_of(at + 2);
      after =
          Row(MomentsFrom(FinishAndSum(x_of(at), io.gamma, io.beta, y, n, now, x, x + io.x_stride),
                          x, n, eps),
              eps);
    } else {
      Finish<false>(x_of(at), io.gamma, io.beta, y, n, now);
    }
    now = next;
    next = after;
  }
  return end;
}

template <std::size_t kRows, bool kHalves>
HWY_INLINE bool RowGroup(const LayerNormOperands& io, std::int64_t at, std::size_t n, double eps) {
  Row rows[kRows];
  bool wide = false;
  for (std::size_t i = 0; i < kRows; ++i) {
    const float* x = io.x + (at + static_cast<std::int64_t>(i)) * io.x_stride;
    rows[i] = Row(MomentsOfBlocks<kHalves>(x, n, eps, false), eps);
    wide |= rows[i].wide;
  }
  if (HWY_UNLIKELY(wide)) return false;
  FinishTogether(io, at, n, rows, std::make_index_sequence<kRows>());
  return true;
}

// Rows of any length from `begin` to `end`, four together, or two where there are 16 registers.
// Each is visited twice.
template <bool kHalves>
std::int64_t GroupedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                         std::size_t n, double eps) {
  std::int64_t at = begin;
  if constexpr (HWY_TARGET <= HWY_AVX3) {
    for (; at + 4 <= end; at += 4) {
      if (!RowGroup<4, kHalves>(io, at, n, eps)) return at;
    }
  }
  for (; at + 2 <= end; at += 2) {
    if (!RowGroup<2, kHalves>(io, at, n, eps)) return at;
  }
  return at < end && RowGroup<1, kHalves>(io, at, n, eps) ? end : at;
}

// Rows of at most kBlock elements from `begin` to `end`, one after the other. Beyond the caches,
// what `policy` says is prefetched while a row is summed. (Prefetching it while it is written lost
// 24 to 34 % on a Zen 5.)
template <bool kStream, bool kHalves, class Policy>
std::int64_t CachedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                        std::size_t n, double eps, Policy policy) {
  hc::StoreCarry<Tag> carry((Tag()));
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    const Row row(MomentsFrom(hc::SumAndSquares<kHalves>(x, n, policy), x, n, eps), eps);
    if (HWY_UNLIKELY(row.wide)) break;
    Finish<kStream>(x, io.gamma, io.beta, io.y + at * io.y_stride, n, row, &carry);
  }
  carry.Close(Tag());
  if constexpr (kStream) hwy::FlushStream();
  return at;
}

// Rows in the caches, from `begin` to `end`.
template <bool kHalves>
std::int64_t InCacheRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                         std::size_t n, double eps) {
  if (grouped(n)) return GroupedRows<kHalves>(io, begin, end, n, eps);
  if (pipelined<kHalves>(n)) return PipelinedRows(io, begin, end, n, eps);
  return CachedRows<false, kHalves>(io, begin, end, n, eps, common::NoPrefetch());
}

// Rows beyond the caches of which four stay in L2, from `begin` to `end`. In steps, while a row is
// summed and what comes is prefetched into L2, the row before it is written: each line that is
// asked for meets one that is written. (With lines prefetched into L1, as CachedRows does, a Zen 5
// lost 8 to 25 % so.)
template <class Policy>
std::int64_t InterleavedRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                             std::size_t n, double eps, Policy policy) {
  const Tag d;
  hc::StoreCarry<Tag> carry(d);
  const auto write = [&](std::int64_t at, std::size_t count, const Row& row) ROOFLANE_LAMBDA {
    return hc::InterleavedStream(d, io.y + at * io.y_stride, count, carry,
                                 ResultOf(io.x + at * io.x_stride, io.gamma, io.beta, row));
  };
  Row row;
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    auto before = at == begin ? write(at, 0, row) : write(at - 1, n, row);  // 0: none yet
    Moments whole;
    for (std::size_t block = 0; block < n; block += kBlock) {
      const std::size_t count = std::min(kBlock, n - block);
      const hc::RowSums sums = hc::SumAndSquares<false>(
          x + block, count, policy,
          [&](std::size_t summed) ROOFLANE_LAMBDA { before.EightUpTo(block + summed); });
      whole = merge(whole, MomentsFrom(sums, x + block, count, eps));
    }
    before.UpTo(n);
    const Row summed(whole, eps);
    if (HWY_UNLIKELY(summed.wide)) break;
    row = summed;
  }
  // Of a row that broke off, the one before it has been written.
  if (at == end) write(end - 1, n, row).UpTo(n);
  carry.Close(d);
  hwy::FlushStream();
  return at;
}

// Rows of any length from `begin` to `end`, each visited twice, y written past the caches.
std::int64_t LongRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                      std::size_t n, double eps, bool pages) {
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    const Row row(MomentsOfBlocks<false>(x, n, eps, pages), eps);
    if (HWY_UNLIKELY(row.wide)) break;
    Finish<true>(x, io.gamma, io.beta, io.y + at * io.y_stride, n, row);
  }
  hwy::FlushStream();
  return at;
}

// Rows from `begin` to `end`, up to the first that only double can compute: the loops end there,
// because a call inside them would cost them their registers. Returns how far they came.
// `beyond_caches`: x and y lie beyond the caches. `stream`: so y is written past them, which it is
// not in place; that must not change its bits.
std::int64_t OrdinaryRows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end,
                          std::int64_t cols, double eps, bool beyond_caches, bool stream,
                          bool halves, common::Prefetch prefetch) {
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
    return InCacheRows<false>(io, begin, end, n, eps);
  }
  if (pages && common::keeps_four_rows(cols)) {
    return InterleavedRows(io, begin, end, n, eps, from_pages);
  }
  if (n > kBlock) return LongRows(io, begin, end, n, eps, pages);
  if (prefetch == common::Prefetch::into_l1) {
    const common::PrefetchIntoL1 next_row = {io.x_stride, last};
    return CachedRows<true, false>(io, begin, end, n, eps, next_row);
  }
  if (common::keeps_three_rows_in_l1(machine(), cols)) {
    return InterleavedRows(io, begin, end, n, eps, into_l2);
  }
  return CachedRows<true, false>(io, begin, end, n, eps, into_l2);
}

void Rows(const LayerNormOperands& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
          double eps, bool beyond_caches, bool stream, bool halves, common::Prefetch prefetch) {
  const auto n = static_cast<std::size_t>(cols);
  for (; begin < end; ++begin) {
    begin = OrdinaryRows(io, begin, end, cols, eps, beyond_caches, stream, halves, prefetch);
    if (begin < end) WideRow(io, begin, n, eps);
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

class Op {
 public:
  using Part = Moments;
  static constexpr common::RowWork work = {
      .vector_ops = 11.5, .row_ops = 40, .short_ops = 2.4, .long_rows = common::Prefetch::into_l2};

  explicit Op(const common::RowSettings& settings)
      : cols_(settings.problem.size("cols")),
        eps_(settings.problem.value("eps")),
        halves_(common::halves_vectors(isa_name(settings.target))),
        rows_(ROOFLANE_HWY_FUNCTION(Rows, settings.target)),
        moments_of_(ROOFLANE_HWY_FUNCTION(MomentsOf, settings.target)),
        finish_slice_(ROOFLANE_HWY_FUNCTION(FinishSlice, settings.target)) {}

  static bool is_direct(const Problem& problem) {
    return problem.dtype("type") == &float32 && !problem.flag("residual");
  }
  void bind(const Operands& operands) { io_ = LayerNormOperands(operands); }
  const common::RowOperands& io() const { return io_; }
  std::size_t workspace_bytes() const { return 0; }
  std::int64_t group() const { return grouped(static_cast<std::size_t>(cols_)) ? 4 : 1; }

  void rows(common::RowRange rows, int, const common::RowAccess& access) const {
    rows_(io_, rows.begin, rows.end, cols_, eps_, access.beyond_caches, access.stream, halves_,
          access.prefetch);
  }
  Moments part(std::int64_t row, const common::Slice& slice,
               const common::RowAccess& access) const {
    return moments_of_(io_.x + row * io_.x_stride + slice.begin, slice.count(), eps_,
                       access.prefetch == common::Prefetch::pages);
  }
  static Moments merge(const Moments& a, const Moments& b) { return layernorm::merge(a, b); }
  void finish(std::int64_t row, const common::Slice& slice, const Moments&, const Moments& whole,
              const common::RowAccess& access) const {
    finish_slice_(io_.x + row * io_.x_stride + slice.begin, io_.gamma + slice.begin,
                  io_.beta + slice.begin, io_.y + row * io_.y_stride + slice.begin, slice.count(),
                  whole.mean, scale_of(whole, eps_), access.stream);
  }

 private:
  std::int64_t cols_;
  double eps_;
  bool halves_;
  decltype(&HWY_STATIC_DISPATCH(Rows)) rows_;
  decltype(&HWY_STATIC_DISPATCH(MomentsOf)) moments_of_;
  decltype(&HWY_STATIC_DISPATCH(FinishSlice)) finish_slice_;
  LayerNormOperands io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  return common::plan_of_rows<Op>(problem, complete_tuning(hwy, problem, env, tuning), env);
}

}  // namespace

const Variant hwy = {
    .name = "hwy",
    .kernel = &kernel,
    .backend = &highway::backend,
    .threads = Threads::many,
    .tunables = common::row_tunables,
    .unsupported = nullptr,
    .tunings = common::tunings_of_rows<Op>,
    .plan = plan,
    .tuning_defect = common::threads_defect,
    .predicted_seconds = common::predicted_seconds_of_rows<Op>,
    .ladder = ladder,
    .dtypes = float_types,
};

}  // namespace rooflane::layernorm
#endif  // HWY_ONCE
