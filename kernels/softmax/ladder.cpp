// Softmax, the ladder: from three loops over libm's expf to threaded vectors, one idea a rung. For
// reading and for `bench --ladder`; the fast variant, hwy.cpp, starts from the last rung.
// softmax.hpp lists the ideas in order, with the gain of each.
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/common/ladder_rows.hpp"
#include "kernels/softmax/softmax.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/ladder.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::softmax::ladder_steps {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using Job = common::RowJob<common::RowOperands>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Step 0. The definition in three passes: the maximum, exp and its sum, the division. One call of
// libm per element; the sum in double, because float32 would lose digits with every term.
void Naive(const Job& job) {
  common::each_row(job, [&job](std::int64_t row) HWY_ATTR {
    const float* x = job.x(row);
    float* y = job.y(row);
    float max = -kInfinity;
    for (std::int64_t j = 0; j < job.cols; ++j) max = x[j] > max ? x[j] : max;
    double sum = 0;
    for (std::int64_t j = 0; j < job.cols; ++j) {
      y[j] = std::exp(x[j] - max);
      sum += y[j];
    }
    for (std::int64_t j = 0; j < job.cols; ++j) y[j] = static_cast<float>(y[j] / sum);
  });
}

// The largest of n elements, at least -FLT_MAX; may drop a NaN, which comes back through exp.
float MaxOf(const float* x, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V max = hn::Set(d, kLowest);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) max = hn::Max(max, hn::LoadU(d, x + i));
  if (i < n) max = hn::Max(max, hc::LoadRow(d, x + i, hc::Part{n - i}, hn::Set(d, kLowest)));
  const float most = hc::MaxLanes(d, max);
  return most > kLowest ? most : kLowest;  // not NaN either
}

// The sum of exp(x - max), each term handed to keep(i, term, fill) as well.
template <class Keep>
HWY_INLINE double SumExp(const float* x, std::size_t n, float max, Keep keep) {
  const D d;
  const V shift = hn::Set(d, max);
  hc::LongSum<D> sum(d);
  hc::SumRow(d, sum, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const V part = hc::LoadRow(d, x + i, fill, hn::Set(d, -kInfinity));
    const V term = hc::ExpNonPositive(d, hn::Sub(part, shift));
    keep(i, term, fill);
    return term;
  });
  return sum.Total(d);
}

// Step 1. The same three passes in vectors, with an exp of our own that has no branches: range
// reduction, a short polynomial, the exponent put together from integers (common/exp-inl.h); one
// division per row.
void Vectorised(const Job& job) {
  common::each_row(job, [&job](std::int64_t row) HWY_ATTR {
    const D d;
    float* y = job.y(row);
    const auto keep = [=](std::size_t i, V term, auto fill)
                          ROOFLANE_LAMBDA { hc::StoreRow(term, d, y + i, fill); };
    const float max = MaxOf(job.x(row), job.n());
    const V scale = hn::Set(d, static_cast<float>(1 / SumExp(job.x(row), job.n(), max, keep)));
    hc::WriteElements<false>(d, y, job.n(), [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      return hn::Mul(hc::LoadRow(d, y + i, fill, scale), scale);
    });
  });
}

// Elements of a block: its maximum is computed first, then its sum. 4 KiB stay in L1 between the
// two.
constexpr std::size_t kBlock = 1024;

// One row online: a block at a time, maximum and sum of all so far are kept, the sum being rescaled
// when the maximum grows; then x once more for the result.
HWY_INLINE void OnlineRow(const float* x, float* y, std::size_t n) {
  const D d;
  Partial all;
  for (std::size_t i = 0; i < n; i += kBlock) {
    const std::size_t count = std::min(kBlock, n - i);
    const float max = MaxOf(x + i, count);
    const auto drop = [](std::size_t, V, auto) ROOFLANE_LAMBDA {};
    all = merge(all, {max, SumExp(x + i, count, max, drop)});
  }
  const V shift = hn::Set(d, all.max);
  const V scale = hn::Set(d, static_cast<float>(1 / all.sum));
  hc::WriteElements<false>(d, y, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const V part = hn::Sub(hc::LoadRow(d, x + i, fill, shift), shift);
    return hn::Mul(hc::ExpNonPositive(d, part), scale);
  });
}

// Step 2. Two visits of memory instead of three, and y written once instead of twice, for a second
// exp per element: a gain where rows do not fit the cache, a loss where they do.
void Online(const Job& job) {
  common::each_row(
      job, [&job](std::int64_t row) HWY_ATTR { OnlineRow(job.x(row), job.y(row), job.n()); });
}

// Step 3. Rows shared among threads.
void Threaded(const Job& job) {
  common::each_row_threaded(
      job, [&job](std::int64_t row) HWY_ATTR { OnlineRow(job.x(row), job.y(row), job.n()); });
}

std::span<const common::Step<Job>> Steps() {
  static constexpr common::Step<Job> steps[] = {{Naive}, {Vectorised}, {Online}, {Threaded}};
  return steps;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::softmax::ladder_steps
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::softmax {
namespace ladder_steps {

HWY_EXPORT(Steps);

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& step, const Environment& env,
                           const Operands& constants) {
  require_no_options(problem, step);
  const std::int64_t target = resolve_isa(env.isa);
  return common::plan_rung(problem, step, env, constants, target,
                           ROOFLANE_HWY_FUNCTION(Steps, target)());
}

}  // namespace ladder_steps

const Rung ladder[] = {
    {"naive", "three passes, libm's expf per element", Threads::one, ladder_steps::plan},
    {"vectorised", "vectors, an exp of our own; one division per row", Threads::one,
     ladder_steps::plan},
    {"online", "maximum and sum in one visit; y written once", Threads::one, ladder_steps::plan},
    {"threaded", "rows shared among threads", Threads::many, ladder_steps::plan},
};

}  // namespace rooflane::softmax
#endif  // HWY_ONCE
