// LayerNorm, the ladder: from three loops to threaded vectors, one idea a rung. For reading and for
// `bench --ladder`; the fast variant, hwy.cpp, starts from the last rung. layernorm.hpp lists the
// ideas in order, with the gain of each.
#include <cmath>
#include <cstdint>

#include "kernels/common/residual.hpp"
#include "kernels/layernorm/ladder.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layernorm/ladder.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm::ladder_steps {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Step 0. The definition in three passes, all in double: the mean, the mean of the squared
// distances from it, the result. Each sum waits for the addition before it.
void Naive(const Job& job) {
  common::each_row(job, [&job](std::int64_t row) HWY_ATTR {
    const float* x = job.x(row);
    float* y = job.y(row);
    const auto count = static_cast<double>(job.cols);
    double sum = 0;
    for (std::int64_t j = 0; j < job.cols; ++j) sum += x[j];
    const double mean = sum / count;
    double squares = 0;
    for (std::int64_t j = 0; j < job.cols; ++j) squares += (x[j] - mean) * (x[j] - mean);
    const double deviation = std::sqrt(squares / count + job.eps);
    for (std::int64_t j = 0; j < job.cols; ++j) {
      const double normal = (x[j] - mean) / deviation;
      y[j] = static_cast<float>(normal * job.io.gamma[j] + job.io.beta[j]);
    }
  });
}

// The sum in double: elements near the mean are only as good as the mean.
double SumInDouble(const float* x, std::size_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const std::size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::PromoteTo(d, hn::LoadU(df, x + i)));
    sum1 = hn::Add(sum1, hn::PromoteTo(d, hn::LoadU(df, x + i + lanes)));
    sum2 = hn::Add(sum2, hn::PromoteTo(d, hn::LoadU(df, x + i + 2 * lanes)));
    sum3 = hn::Add(sum3, hn::PromoteTo(d, hn::LoadU(df, x + i + 3 * lanes)));
  }
  double rest = 0;
  for (; i < n; ++i) rest += x[i];
  const auto all = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return hn::GetLane(hn::SumOfLanes(d, all)) + rest;
}

// Mean and squares of n > 0 elements in two passes of vectors. The mean is that of a sum in double;
// the squares are taken about its float32 and corrected for what that lacks.
Moments MomentsOf(const float* x, std::size_t n) {
  const D d;
  const auto count = static_cast<double>(n);
  const double mean = SumInDouble(x, n) / count;
  const auto rounded = static_cast<float>(mean);
  const V centre = hn::Set(d, rounded);
  hc::LongSum<D> squares(d);
  hc::SumRow(d, squares, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const V distance = hn::Sub(hc::LoadRow(d, x + i, fill, centre), centre);
    return hn::Mul(distance, distance);
  });
  const double lacking = mean - rounded;
  return {static_cast<std::int64_t>(n), mean, squares.Total(d) - lacking * lacking * count};
}

// y = (x - mean) · scale · gamma + beta in vectors. The mean is a sum of two floats, so that a mean
// that dwarfs the deviations costs no digits.
HWY_INLINE void WriteResult(const Job& job, std::int64_t row, const Moments& moments) {
  const D d;
  const float* x = job.x(row);
  const float* gamma = job.io.gamma;
  const float* beta = job.io.beta;
  const auto mean = static_cast<float>(moments.mean);
  const V high = hn::Set(d, mean);
  const V low = hn::Set(d, static_cast<float>(moments.mean - mean));
  const V scale = hn::Set(d, static_cast<float>(scale_of(moments, job.eps)));
  hc::WriteElements<false>(d, job.y(row), job.n(), [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const V centred = hn::Sub(hn::Sub(hc::LoadRow(d, x + i, fill, high), high), low);
    return hn::MulAdd(hn::Mul(centred, scale), hc::LoadRow(d, gamma + i, fill, high),
                      hc::LoadRow(d, beta + i, fill, high));
  });
}

// Step 1. The same three passes in vectors, several sums at a time; one division per row.
void Vectorised(const Job& job) {
  common::each_row(job, [&job](std::int64_t row)
                            HWY_ATTR { WriteResult(job, row, MomentsOf(job.x(row), job.n())); });
}

// Elements of a block: its mean is computed first, then its squares. 16 KiB stay in L1 between the
// two, and merging two blocks costs little beside 4096 elements.
constexpr std::size_t kBlock = 4096;

// Mean and squares of a block at a time, merged into those of all before.
HWY_INLINE Moments BlockedMoments(const float* x, std::size_t n) {
  Moments all;
  for (std::size_t i = 0; i < n; i += kBlock) {
    all = merge(all, MomentsOf(x + i, std::min(kBlock, n - i)));
  }
  return all;
}

// Step 2. One visit of memory for both sums: of each block the mean, then, from L1, the squares.
// Nothing changes for rows that fit the cache.
void OneVisit(const Job& job) {
  common::each_row(job, [&job](std::int64_t row) HWY_ATTR {
    WriteResult(job, row, BlockedMoments(job.x(row), job.n()));
  });
}

// Step 3. Rows shared among threads.
void Threaded(const Job& job) {
  common::each_row_threaded(job, [&job](std::int64_t row) HWY_ATTR {
    WriteResult(job, row, BlockedMoments(job.x(row), job.n()));
  });
}

std::span<const common::Step<Job>> Steps() {
  static constexpr common::Step<Job> steps[] = {{Naive}, {Vectorised}, {OneVisit}, {Threaded}};
  return steps;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::layernorm::ladder_steps
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::layernorm {
namespace ladder_steps {

HWY_EXPORT(Steps);

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& step, const Environment& env,
                           const Operands& constants) {
  common::require_no_residual(problem, step);
  const std::int64_t target = resolve_isa(env.isa);
  return common::plan_rung(problem, step, env, constants, target,
                           ROOFLANE_HWY_FUNCTION(Steps, target)());
}

}  // namespace ladder_steps

const Rung ladder[] = {
    {"naive", "three passes in double", Threads::one, ladder_steps::plan},
    {"vectorised", "vectors, several sums at a time; one division per row", Threads::one,
     ladder_steps::plan},
    {"one visit", "mean and squares of a block while it is in L1", Threads::one,
     ladder_steps::plan},
    {"threaded", "rows shared among threads", Threads::many, ladder_steps::plan},
};

}  // namespace rooflane::layernorm
#endif  // HWY_ONCE
