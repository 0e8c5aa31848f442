// Sum by segment with Highway: a segment's rows are added in registers, a few vectors of columns at
// a time. See segment_sum.hpp for the two paths, segments.hpp for how edges are shared.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/segment_plan.hpp"
#include "kernels/segment_sum/hwy_job.hpp"
#include "kernels/segment_sum/segment_sum.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/segment_sum/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/segments-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::segment_sum {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

// to = the sum of the rows at places [first,last), at least one: four vectors of columns at a time,
// as many additions under way as one takes cycles.
template <class D, bool kOrdered>
HWY_INLINE void SumRows(D d, const hc::PlacedRows<kOrdered>& rows, std::int64_t first,
                        std::int64_t last, std::size_t cols, float* to) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t col = 0;
  for (; col + 4 * lanes <= cols; col += 4 * lanes) {
    const float* row = rows.At(first) + col;
    auto s0 = hn::LoadU(d, row), s1 = hn::LoadU(d, row + lanes);
    auto s2 = hn::LoadU(d, row + 2 * lanes), s3 = hn::LoadU(d, row + 3 * lanes);
    for (std::int64_t place = first + 1; place < last; ++place) {
      row = rows.At(place) + col;
      s0 = hn::Add(s0, hn::LoadU(d, row));
      s1 = hn::Add(s1, hn::LoadU(d, row + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, row + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, row + 3 * lanes));
    }
    hn::StoreU(s0, d, to + col);
    hn::StoreU(s1, d, to + col + lanes);
    hn::StoreU(s2, d, to + col + 2 * lanes);
    hn::StoreU(s3, d, to + col + 3 * lanes);
  }
  hc::ForVectors(d, cols - col, [&](std::size_t rest, auto fill) ROOFLANE_LAMBDA {
    auto sum = hc::LoadRow(d, rows.At(first) + col + rest, fill);
    for (std::int64_t place = first + 1; place < last; ++place) {
      sum = hn::Add(sum, hc::LoadRow(d, rows.At(place) + col + rest, fill));
    }
    hc::StoreRow(sum, d, to + col + rest, fill);
  });
}

template <class D>
HWY_INLINE void Clear(D d, float* y, std::size_t cols) {
  hc::ForVectors(d, cols, [=](std::size_t col, auto fill) ROOFLANE_LAMBDA {
    hc::StoreRow(hn::Zero(d), d, y + col, fill);
  });
}

template <class D>
HWY_INLINE void AddRow(D d, const float* x, float* y, std::size_t cols) {
  hc::ForVectors(d, cols, [=](std::size_t col, auto fill) ROOFLANE_LAMBDA {
    const auto sum = hn::Add(hc::LoadRow(d, y + col, fill), hc::LoadRow(d, x + col, fill));
    hc::StoreRow(sum, d, y + col, fill);
  });
}

template <class D, bool kOrdered>
HWY_INLINE void Piece(D d, const Job& job, std::int64_t begin, std::int64_t end,
                      std::int64_t piece) {
  const hc::PlacedRows<kOrdered> rows{job.edges, job.x, job.x_stride};
  const auto one_run = [&](const hc::Run& run) ROOFLANE_LAMBDA {
    if (job.prefetch) hc::PrefetchBehind(rows, run, job.cols);
    float* to = job.y + run.segment * job.y_stride;
    if (run.before) {
      to = job.carry + piece * job.carry_stride;
      job.carry_segment[piece] = run.segment;
    }
    SumRows(d, rows, run.first, run.last, job.cols, to);
  };
  const auto empty = [&](std::int64_t from, std::int64_t to) ROOFLANE_LAMBDA {
    for (; from < to; ++from) Clear(d, job.y + from * job.y_stride, job.cols);
  };
  job.carry_segment[piece] = -1;
  hc::ForRuns(job.edges, begin, end, one_run, empty);
}

// The sums of the segments at places [begin,end).
void SumPiece(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t piece) {
  hc::WithVectors(job.cols, [&](auto d) ROOFLANE_LAMBDA {
    if (job.edges.order == nullptr) {
      Piece<decltype(d), false>(d, job, begin, end, piece);
    } else {
      Piece<decltype(d), true>(d, job, begin, end, piece);
    }
  });
}

// Adds what was carried over, piece by piece.
void AddCarried(const Job& job, std::int64_t pieces) {
  for (std::int64_t piece = 1; piece < pieces; ++piece) {
    const std::int64_t segment = job.carry_segment[piece];
    if (segment < 0) continue;
    AddRow(hn::ScalableTag<float>(), job.carry + piece * job.carry_stride,
           job.y + segment * job.y_stride, job.cols);
  }
}

template <class D>
HWY_INLINE void Scatter(D d, const Job& job, std::int64_t begin, std::size_t cols) {
  for (std::int64_t s = 0; s < job.edges.segments; ++s) {
    Clear(d, job.y + s * job.y_stride + begin, cols);
  }
  // A row of y comes from L2 or L3 in the time of some rows.
  constexpr std::int64_t distance = 8;
  for (std::int64_t e = 0; e < job.edges.edges; ++e) {
    if (job.prefetch && e + distance < job.edges.edges) {
      const float* const row = job.y + job.edges.segment[e + distance] * job.y_stride + begin;
      for (std::size_t col = 0; col < cols; col += 16) hwy::Prefetch(row + col);
    }
    AddRow(d, job.x + e * job.x_stride + begin, job.y + job.edges.segment[e] * job.y_stride + begin,
           cols);
  }
}

// Adds every edge's columns from `begin` on to those of its segment.
void ScatterColumns(const Job& job, std::int64_t begin, std::size_t cols) {
  hc::WithVectors(cols, [&](auto d) ROOFLANE_LAMBDA { Scatter(d, job, begin, cols); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::segment_sum
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::segment_sum {

HWY_EXPORT(SumPiece);
HWY_EXPORT(AddCarried);
HWY_EXPORT(ScatterColumns);

namespace {

constexpr Tunable tunables[] = {
    {"path",
     "0: segment by segment, not sorted after finding that order; 1: not sorted, edge by edge, "
     "columns shared among threads",
     0, 1},
};

// Threads that share the columns: whole cache lines for each.
int column_parts(const Problem& problem, int threads) {
  const std::int64_t lines = (problem.size("cols") + 15) / 16;
  return static_cast<int>(std::min<std::int64_t>(threads, lines));
}

// Edge by edge where a thread's columns of y stay in its L2, or where they are all that it writes
// beside an order that it would have to find alone.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const int threads = common::segment_threads(problem, env);
  const int parts = column_parts(problem, threads);
  const double floats = problem.value("segments") * problem.value("cols") / parts;
  return common::paths(problem, parts == threads && common::stay_in_l2(floats));
}

class HwyPlan final : public common::HwySegmentPlan<Job> {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : HwySegmentPlan(problem, tuning, env),
        sum_(ROOFLANE_HWY_FUNCTION(SumPiece, target_)),
        add_(ROOFLANE_HWY_FUNCTION(AddCarried, target_)),
        scatter_(ROOFLANE_HWY_FUNCTION(ScatterColumns, target_)) {
    if (other_way_) {
      job_.prefetch = !common::stay_in_l2(problem.value("segments") * problem.value("cols"));
      return;
    }
    job_.carry_stride = (problem.size("cols") + 15) / 16 * 16;
    carry_ = Buffer(static_cast<std::size_t>(pieces_ * job_.carry_stride) * sizeof(float));
    carry_segment_.resize(static_cast<std::size_t>(pieces_));
    job_.carry = carry_.f32();
    job_.carry_segment = carry_segment_.data();
  }

  void run() override {
    if (other_way_) return scatter();
    for_pieces(sum_);
    if (pieces_ > 1) add_(job_, pieces_);
  }

 protected:
  std::size_t workspace_bytes() const override {
    return carry_.bytes() + carry_segment_.size() * sizeof(carry_segment_[0]);
  }

 private:
  void scatter() {
    const int parts = column_parts(problem(), threads_);
    if (parts == 1) return scatter_(job_, 0, job_.cols);
    parallel_for_static(pool_, threads_, parts, [&](std::int64_t part, int) {
      const common::Slice slice =
          common::slice_of_row(static_cast<std::int64_t>(job_.cols), static_cast<int>(part), parts);
      if (slice.begin < slice.end) scatter_(job_, slice.begin, slice.count());
    });
  }

  decltype(&HWY_STATIC_DISPATCH(SumPiece)) sum_;
  decltype(&HWY_STATIC_DISPATCH(AddCarried)) add_;
  decltype(&HWY_STATIC_DISPATCH(ScatterColumns)) scatter_;
  Buffer carry_;
  std::vector<std::int64_t> carry_segment_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  require_tuning(hwy, problem, env, tuning);
  return std::make_unique<HwyPlan>(problem, complete_tuning(hwy, problem, env, tuning), env);
}

}  // namespace

const Variant hwy = {.name = "hwy",
                     .kernel = &kernel,
                     .backend = &highway::backend,
                     .threads = Threads::many,
                     .tunables = tunables,
                     .unsupported = nullptr,
                     .tunings = tunings,
                     .plan = plan,
                     .tuning_defect = common::path_defect,
                     .dtypes = operand_types};

}  // namespace rooflane::segment_sum
#endif  // HWY_ONCE
