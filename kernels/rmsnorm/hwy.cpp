// RMSNorm with Highway: the sum of a row's squares, then the row again, from cache where it fits,
// as the result. No division per element. How rows are shared among threads, and what is
// prefetched: kernels/common/rows.hpp. See rmsnorm.hpp for the maths.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/row_plan.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rmsnorm/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/double_row-inl.h"
#include "kernels/common/norms.hpp"
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

double SquaresOf(const float* x, std::size_t n, double eps, bool pages) {
  const double squares = pages ? SumOfSquares(x, n, common::PrefetchPages{common::last_of(x, n)})
                               : SumOfSquares(x, n, common::NoPrefetch());
  const bool holds = common::squares_hold(squares, static_cast<double>(n), eps);
  return HWY_LIKELY(holds) ? squares : hc::SquaresInDouble(x, n, 0);
}

// 1/sigma of a row. `wide`: only double can compute it.
struct Row {
  float scale = 0;
  bool wide = false;
  Row() = default;
  HWY_INLINE Row(double squares, std::size_t n, double eps)
      : scale(static_cast<float>(scale_of(squares, static_cast<std::int64_t>(n), eps))),
        wide(!common::squares_hold(squares, static_cast<double>(n), eps)) {}
};

void FinishSlice(const float* x, const float* gamma, float* y, std::size_t n, double scale,
                 bool stream) {
  const auto factor = static_cast<float>(scale);
  if (!common::float_writes(0, scale)) {
    hc::WriteInDouble(x, gamma, nullptr, y, n, 0, scale);
  } else if (stream) {
    hc::WriteRow<true>(Tag(), y, n, ResultOf(x, gamma, factor));
    hwy::FlushStream();
  } else {
    hc::WriteRow<false>(Tag(), y, n, ResultOf(x, gamma, factor));
  }
}

// Rows from `begin` to `end`, one after the other. Beyond the caches, what `policy` says is
// prefetched while a row is summed.
template <bool kStream, class Policy>
std::int64_t CachedRows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end,
                        std::size_t n, double eps, Policy policy) {
  const Tag d;
  hc::StoreCarry<Tag> carry(d);
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    float* y = io.y + at * io.y_stride;
    const Row row(SumOfSquares(x, n, policy), n, eps);
    if (HWY_UNLIKELY(row.wide)) break;
    if constexpr (kStream) {
      hc::StreamRow(d, y, n, carry, ResultOf(x, io.gamma, row.scale));
    } else {
      hc::WriteRow<false>(d, y, n, ResultOf(x, io.gamma, row.scale));
    }
  }
  carry.Close(d);
  if constexpr (kStream) hwy::FlushStream();
  return at;
}

// Rows beyond the caches of which four stay in L2, from `begin` to `end`. In steps, while a row is
// summed and what comes is prefetched into L2, the row before it is written.
template <class Policy>
std::int64_t InterleavedRows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end,
                             std::size_t n, double eps, Policy policy) {
  const Tag d;
  hc::StoreCarry<Tag> carry(d);
  const auto write = [&](std::int64_t at, std::size_t count, const Row& row) ROOFLANE_LAMBDA {
    return hc::InterleavedStream(d, io.y + at * io.y_stride, count, carry,
                                 ResultOf(io.x + at * io.x_stride, io.gamma, row.scale));
  };
  Row row;
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    auto before = at == begin ? write(at, 0, row) : write(at - 1, n, row);  // 0: none yet
    const double squares = SumOfSquares(
        x, n, policy, [&](std::size_t summed) ROOFLANE_LAMBDA { before.EightUpTo(summed); });
    before.UpTo(n);
    const Row summed(squares, n, eps);
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
std::int64_t LongRows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end,
                      std::size_t n, double eps, bool pages) {
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const float* x = io.x + at * io.x_stride;
    const double squares = SquaresOf(x, n, eps, pages);
    const Row row(squares, n, eps);
    if (HWY_UNLIKELY(row.wide)) break;
    hc::WriteRow<true>(Tag(), io.y + at * io.y_stride, n, ResultOf(x, io.gamma, row.scale));
  }
  hwy::FlushStream();
  return at;
}

// Rows from `begin` to `end`, up to the first that only double can compute; returns how far they
// came. `stream`: y is written past the caches. The choice among the ways past them is LayerNorm's:
// its loops differ only in what they sum.
std::int64_t OrdinaryRows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end,
                          std::int64_t cols, double eps, bool stream, common::Prefetch prefetch) {
  const auto n = static_cast<std::size_t>(cols);
  if (!stream) return CachedRows<false>(io, begin, end, n, eps, common::NoPrefetch());
  const bool pages = prefetch == common::Prefetch::pages;
  const float* last = common::last_of_rows(io, end, n);
  const common::PrefetchIntoL2 into_l2 = {common::prefetch_distance(n, io.x_stride), last};
  if (pages && common::keeps_four_rows(cols)) {
    return InterleavedRows(io, begin, end, n, eps, common::PrefetchPages{last});
  }
  if (cols > common::row_block) return LongRows(io, begin, end, n, eps, pages);
  if (prefetch == common::Prefetch::into_l1) {
    const common::PrefetchIntoL1 in_order = {into_l2.distance, last};
    return CachedRows<true>(io, begin, end, n, eps, in_order);
  }
  if (common::keeps_three_rows_in_l1(machine(), cols)) {
    return InterleavedRows(io, begin, end, n, eps, into_l2);
  }
  return CachedRows<true>(io, begin, end, n, eps, into_l2);
}

void Rows(const RmsNormOperands& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
          double eps, bool stream, common::Prefetch prefetch) {
  const auto n = static_cast<std::size_t>(cols);
  for (; begin < end; ++begin) {
    begin = OrdinaryRows(io, begin, end, cols, eps, stream, prefetch);
    if (begin == end) return;
    const float* x = io.x + begin * io.x_stride;
    const double scale = scale_of(hc::SquaresInDouble(x, n, 0), cols, eps);
    hc::WriteInDouble(x, io.gamma, nullptr, io.y + begin * io.y_stride, n, 0, scale);
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

class Op {
 public:
  using Part = double;  // the sum of squares
  static constexpr common::RowWork work = {
      .vector_ops = 8, .row_ops = 40, .short_ops = 0, .long_rows = common::Prefetch::into_l2};

  explicit Op(const common::RowSettings& settings)
      : cols_(settings.problem.size("cols")),
        eps_(settings.problem.value("eps")),
        rows_(ROOFLANE_HWY_FUNCTION(Rows, settings.target)),
        squares_of_(ROOFLANE_HWY_FUNCTION(SquaresOf, settings.target)),
        finish_slice_(ROOFLANE_HWY_FUNCTION(FinishSlice, settings.target)) {}

  static bool is_direct(const Problem& problem) {
    return problem.dtype("type") == &float32 && !problem.flag("residual");
  }
  void bind(const Operands& operands) { io_ = RmsNormOperands(operands); }
  const common::RowOperands& io() const { return io_; }
  std::size_t workspace_bytes() const { return 0; }
  std::int64_t group() const { return 1; }

  void rows(common::RowRange rows, int, const common::RowAccess& access) const {
    rows_(io_, rows.begin, rows.end, cols_, eps_, access.stream, access.prefetch);
  }
  double part(std::int64_t row, const common::Slice& slice, const common::RowAccess& access) const {
    return squares_of_(io_.x + row * io_.x_stride + slice.begin, slice.count(), eps_,
                       access.prefetch == common::Prefetch::pages);
  }
  static double merge(double a, double b) { return a + b; }
  void finish(std::int64_t row, const common::Slice& slice, double, double whole,
              const common::RowAccess& access) const {
    finish_slice_(io_.x + row * io_.x_stride + slice.begin, io_.gamma + slice.begin,
                  io_.y + row * io_.y_stride + slice.begin, slice.count(),
                  scale_of(whole, cols_, eps_), access.stream);
  }

 private:
  std::int64_t cols_;
  double eps_;
  decltype(&HWY_STATIC_DISPATCH(Rows)) rows_;
  decltype(&HWY_STATIC_DISPATCH(SquaresOf)) squares_of_;
  decltype(&HWY_STATIC_DISPATCH(FinishSlice)) finish_slice_;
  RmsNormOperands io_;
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
    .dtypes = float_types,
};

}  // namespace rooflane::rmsnorm
#endif  // HWY_ONCE
