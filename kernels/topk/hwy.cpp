// The largest elements with Highway: one pass for k=1, two for more. Rows are shared among threads,
// of few long rows the parts. See topk.hpp for the ideas.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/topk/topk.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/topk/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::topk {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The first element that no other comes before, one by one: for rows that may hold NaN.
inline Found FirstOf(const float* x, std::int64_t n) {
  Found first = {x[0], 0};
  for (std::int64_t i = 1; i < n && !std::isnan(first.value); ++i) {
    const Found element = {x[i], static_cast<std::int32_t>(i)};
    if (before(element, first)) first = element;
  }
  return first;
}

// The largest element of n >= 1.
Found Largest(const float* x, std::int64_t n) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t group = 4 * lanes;  // elements
  Vector most = hn::Set(d, -kInfinity);
  Vector sum = hn::Zero(d);  // NaN where an element is
  auto place = hn::Zero(di);
  std::int64_t i = 0;
  std::int32_t groups = 0;
  for (; i + group <= n; i += group, ++groups) {
    const Vector v0 = hn::LoadU(d, x + i), v1 = hn::LoadU(d, x + i + lanes);
    const Vector v2 = hn::LoadU(d, x + i + 2 * lanes), v3 = hn::LoadU(d, x + i + 3 * lanes);
    const Vector here = hn::Max(hn::Max(v0, v1), hn::Max(v2, v3));
    sum = hn::Add(sum, hn::Add(hn::Add(v0, v1), hn::Add(v2, v3)));
    const auto rose = hn::RebindMask(di, hn::Gt(here, most));
    most = hn::Max(most, here);
    place = hn::IfThenElse(rose, hn::Set(di, groups), place);
  }
  float largest = hc::MaxLanes(d, most);
  bool may_hold_nan = std::isnan(hc::SumLanes(d, sum));
  std::int64_t first = n;
  if (groups > 0 && !may_hold_nan) {
    const auto is_largest = hn::RebindMask(di, hn::Eq(most, hn::Set(d, largest)));
    const auto far = hn::Set(di, std::numeric_limits<std::int32_t>::max());
    first = group * hn::GetLane(hn::MinOfLanes(di, hn::IfThenElse(is_largest, place, far)));
  }
  // The elements behind the last group.
  for (std::int64_t rest = i; rest < n; ++rest) {
    may_hold_nan = may_hold_nan || std::isnan(x[rest]);
    if (x[rest] > largest || first == n) {
      largest = x[rest];
      first = rest;
    }
  }
  if (may_hold_nan) return FirstOf(x, n);
  while (x[first] != largest) ++first;
  return {x[first], static_cast<std::int32_t>(first)};
}

// The greatest of n elements; may drop a NaN, or one of those before it.
HWY_INLINE float MaxOf(const float* x, std::int64_t n) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vector m0 = hn::Set(d, -kInfinity), m1 = m0;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
  }
  if (i + lanes <= n) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    i += lanes;
  }
  if (i < n) {
    const hc::Part rest{static_cast<std::size_t>(n - i)};
    m1 = hn::Max(m1, hc::LoadRow(d, x + i, rest, hn::Set(d, -kInfinity)));
  }
  return hc::MaxLanes(d, hn::Max(m0, m1));
}

// Candidates among which the k first are.
struct List {
  Found* found;
  std::int64_t room;
  std::int64_t k;
  std::int64_t count = 0;
  float least = -kInfinity;  // smaller elements are none
  bool more = false;         // equal ones are none either

  HWY_INLINE void Add(float value, std::int64_t id) {
    if (more && value == least) return;
    if (count == room) Shrink();
    found[count++] = {value, static_cast<std::int32_t>(id)};
  }
  // To the k first. What follows has higher ids: it must be larger.
  void Shrink() {
    std::nth_element(found, found + k - 1, found + count, before);
    count = k;
    const float last = found[k - 1].value;
    more = true;
    least = std::isnan(last) ? kInfinity : last;
  }
};

// Adds the elements that may be among the first.
void Collect(const float* x, std::int64_t n, List& list) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  const auto add = [&](std::int64_t end) ROOFLANE_LAMBDA {
    for (; i < end; ++i) {
      if (!(x[i] < list.least)) list.Add(x[i], i);
    }
  };
  while (i + 4 * lanes <= n) {
    const Vector least = hn::Set(d, list.least);
    const auto small = hn::And(
        hn::And(hn::Lt(hn::LoadU(d, x + i), least), hn::Lt(hn::LoadU(d, x + i + lanes), least)),
        hn::And(hn::Lt(hn::LoadU(d, x + i + 2 * lanes), least),
                hn::Lt(hn::LoadU(d, x + i + 3 * lanes), least)));
    if (HWY_LIKELY(hn::AllTrue(d, small))) {
      i += 4 * lanes;
    } else {
      add(i + 4 * lanes);
    }
  }
  add(n);
}

// A value that at least k of n elements reach: the k-th largest of the maxima of `chunks` chunks;
// each maximum is an element. NaN counts as infinity.
float ReachedBy(const float* x, std::int64_t n, std::int64_t k, std::int64_t chunks,
                float* maxima) {
  const std::int64_t chunk = (n + chunks - 1) / chunks;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; i += chunk) {
    const float max = MaxOf(x + i, std::min(chunk, n - i));
    maxima[count++] = std::isnan(max) ? kInfinity : max;
  }
  if (count < k) return -kInfinity;
  std::nth_element(maxima, maxima + k - 1, maxima + count, std::greater<>());
  return maxima[k - 1];
}

// The first min(k, n) of n elements in order to found[0..k); `room` as room_for says, `maxima` has
// room for 4·k.
void First(const float* x, std::int64_t n, std::int64_t k, Found* found, std::int64_t room,
           float* maxima) {
  if (k == 1) {
    found[0] = Largest(x, n);
    return;
  }
  List list{found, room, k};
  if (n > room) list.least = ReachedBy(x, n, k, 4 * k, maxima);
  Collect(x, n, list);
  std::partial_sort(found, found + std::min(k, list.count), found + list.count, before);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::topk
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::topk {

HWY_EXPORT(First);

namespace {

// Elements of a part of a row that are worth a thread: 256 KiB, some 5 µs in L2 beside 2 to 6 µs
// that it takes to start threads.
constexpr std::int64_t least_part = 65536;

// Candidates that a thread may have: so many that rows which are not longer need no first pass, and
// that each chunk of a longer one (4·k of them) is a vector and more.
std::int64_t room_for(std::int64_t k) { return k == 1 ? 1 : std::max<std::int64_t>(64 * k, 1024); }

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Environment& env)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        k_(problem.size("k")),
        threads_(common::useful_threads(env.threads, rows_, cols_)),
        pool_(env.pool),
        target_(resolve_isa(env.isa)),
        first_(ROOFLANE_HWY_FUNCTION(First, target_)) {
    const bool few = rows_ < threads_ && k_ <= least_part / 64;
    parts_ = few ? std::clamp<std::int64_t>(cols_ / least_part, 1, threads_) : 1;
    list_stride_ = room_for(k_);
    const std::int64_t lists = parts_ > 1 ? rows_ * parts_ : threads_;
    found_.resize(static_cast<std::size_t>(lists * list_stride_));
    maxima_.resize(static_cast<std::size_t>(lists * 4 * k_));
    if (parts_ > 1) merged_.resize(static_cast<std::size_t>(parts_ * k_));
  }

  void run() override {
    if (parts_ > 1) {
      run_parts();
      return;
    }
    if (threads_ == 1) {
      for (std::int64_t row = 0; row < rows_; ++row) run_row(row, 0);
      return;
    }
    common::for_rows(pool_, threads_, rows_, cols_, 1, [&](common::RowRange rows, int thread) {
      for (std::int64_t row = rows.begin; row < rows.end; ++row) run_row(row, thread);
    });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.workspace_bytes =
        (found_.size() + merged_.size()) * sizeof(Found) + maxima_.size() * sizeof(float);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { io_ = Rows(operands); }

 private:
  Found* list(std::int64_t index) { return found_.data() + index * list_stride_; }
  float* maxima(std::int64_t index) { return maxima_.data() + index * 4 * k_; }

  void run_row(std::int64_t row, int thread) {
    first_(io_.x + row * io_.x_stride, cols_, k_, list(thread), list_stride_, maxima(thread));
    io_.write(row, list(thread), k_);
  }

  // Parts have as many elements as k at least, so that each list is full.
  void run_parts() {
    parallel_for_static(pool_, threads_, rows_ * parts_, [&](std::int64_t task, int) {
      const common::Slice slice = slice_of(task % parts_);
      Found* const found = list(task);
      first_(io_.x + task / parts_ * io_.x_stride + slice.begin, slice.end - slice.begin, k_, found,
             list_stride_, maxima(task));
      for (std::int64_t i = 0; i < k_; ++i) found[i].id += static_cast<std::int32_t>(slice.begin);
    });
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t part = 0; part < parts_; ++part) {
        std::copy_n(list(row * parts_ + part), k_, merged_.begin() + part * k_);
      }
      std::partial_sort(merged_.begin(), merged_.begin() + k_, merged_.end(), before);
      io_.write(row, merged_.data(), k_);
    }
  }

  common::Slice slice_of(std::int64_t part) const {
    return common::slice_of_row(cols_, static_cast<int>(part), static_cast<int>(parts_));
  }

  std::int64_t rows_, cols_, k_;
  int threads_;
  Pool* pool_;
  std::int64_t target_;
  decltype(&HWY_STATIC_DISPATCH(First)) first_;
  std::int64_t parts_ = 1;
  std::int64_t list_stride_ = 1;
  std::vector<Found> found_;
  std::vector<float> maxima_;
  std::vector<Found> merged_;
  Rows io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands&) {
  return std::make_unique<HwyPlan>(problem, env);
}

}  // namespace

const Variant hwy = {.name = "hwy",
                     .kernel = &kernel,
                     .backend = &highway::backend,
                     .threads = Threads::many,
                     .tunables = {},
                     .unsupported = nullptr,
                     .tunings = no_tunings,
                     .plan = plan,
                     .dtypes = operand_types};

}  // namespace rooflane::topk
#endif  // HWY_ONCE
