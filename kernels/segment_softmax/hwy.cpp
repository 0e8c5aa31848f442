// Softmax by segment with Highway: columns are lanes, a segment's maximum and sum stay in
// registers. See segment_softmax.hpp for the two paths, segments.hpp for how edges are shared.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/segment_plan.hpp"
#include "kernels/segment_softmax/hwy_job.hpp"
#include "kernels/segment_softmax/segment_softmax.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/segment_softmax/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/segments-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::segment_softmax {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

// Maxima start here, so that elements of -inf weigh zero whatever the others are.
inline constexpr float kLowest = std::numeric_limits<float>::lowest();

// Where the elements of a segment are, and where they go.
template <bool kOrdered>
struct Places {
  hc::PlacedRows<kOrdered> x;
  float* y;
  std::int64_t y_stride;
  HWY_INLINE float* To(std::int64_t place) const { return y + x.Edge(place) * y_stride; }
};

// The maximum of a vector of columns from `col` on.
template <class D, bool kOrdered, class Fill>
HWY_INLINE auto MaxOf(D d, const Places<kOrdered>& places, const hc::Run& run, std::size_t col,
                      Fill fill) {
  auto max = hn::Set(d, kLowest);
  for (std::int64_t place = run.first; place < run.last; ++place) {
    max = hn::Max(max, hc::LoadRow(d, places.x.At(place) + col, fill));
  }
  return max;
}

// y = exp(x - max), and their sum: plain over up to 16 edges, which costs few roundings, and
// compensated beyond.
template <class D, bool kOrdered, class Fill, class V = hn::Vec<D>>
HWY_INLINE V WriteTerms(D d, const Places<kOrdered>& places, const hc::Run& run, V max,
                        std::size_t col, Fill fill) {
  const auto some = [&](std::int64_t first, std::int64_t last) ROOFLANE_LAMBDA {
    V sum = hn::Zero(d);
    for (std::int64_t place = first; place < last; ++place) {
      const V x = hc::LoadRow(d, places.x.At(place) + col, fill);
      const V term = hc::ExpNonPositive(d, hn::Sub(x, max));
      hc::StoreRow(term, d, places.To(place) + col, fill);
      sum = hn::Add(sum, term);
    }
    return sum;
  };
  constexpr std::int64_t together = 16;
  if (run.last - run.first <= together) return some(run.first, run.last);
  hc::LongSum<D> sum(d);
  for (std::int64_t first = run.first; first < run.last; first += together) {
    sum.Add(some(first, std::min(first + together, run.last)));
  }
  return sum.PerLane();
}

template <class D, bool kOrdered, class Fill, class V = hn::Vec<D>>
HWY_INLINE void Scale(D d, const Places<kOrdered>& places, std::int64_t first, std::int64_t last,
                      V scale, std::size_t col, Fill fill) {
  for (std::int64_t place = first; place < last; ++place) {
    float* const y = places.To(place) + col;
    hc::StoreRow(hn::Mul(hc::LoadRow(d, y, fill), scale), d, y, fill);
  }
}

// A segment that is all within one piece.
template <class D, bool kOrdered>
HWY_INLINE void WholeSegment(D d, const Places<kOrdered>& places, const hc::Run& run,
                             std::size_t cols) {
  hc::ForVectors(d, cols, [&](std::size_t col, auto fill) ROOFLANE_LAMBDA {
    const auto max = MaxOf(d, places, run, col, fill);
    const auto sum = WriteTerms(d, places, run, max, col, fill);
    Scale(d, places, run.first, run.last, hn::Div(hn::Set(d, 1.0f), sum), col, fill);
  });
}

// What a piece has of a segment that others have too: the terms by its own maximum.
template <class D, bool kOrdered>
HWY_INLINE void PartOfSegment(D d, const Job& job, const Places<kOrdered>& places,
                              const hc::Run& run, std::int64_t share) {
  job.shared[share] = {run.segment, run.first, run.last};
  hc::ForVectors(d, job.cols, [&](std::size_t col, auto fill) ROOFLANE_LAMBDA {
    const auto max = MaxOf(d, places, run, col, fill);
    const auto sum = WriteTerms(d, places, run, max, col, fill);
    hc::StoreRow(max, d, job.max + share * job.share_stride + col, fill);
    hc::StoreRow(sum, d, job.sum + share * job.share_stride + col, fill);
  });
}

template <bool kOrdered>
HWY_INLINE Places<kOrdered> PlacesOf(const Job& job) {
  return {{job.edges, job.x, job.x_stride}, job.y, job.y_stride};
}

template <class D, bool kOrdered>
HWY_INLINE void Piece(D d, const Job& job, std::int64_t begin, std::int64_t end,
                      std::int64_t piece) {
  const Places<kOrdered> places = PlacesOf<kOrdered>(job);
  const std::int64_t share = 2 * piece;
  job.shared[share] = job.shared[share + 1] = {};
  const auto one_run = [&](const hc::Run& run) ROOFLANE_LAMBDA {
    if (job.prefetch) hc::PrefetchBehind(places.x, run, job.cols);
    if (run.before || run.after) {
      PartOfSegment(d, job, places, run, run.before ? share : share + 1);
    } else {
      WholeSegment(d, places, run, job.cols);
    }
  };
  hc::ForRuns(job.edges, begin, end, one_run, [](std::int64_t, std::int64_t) ROOFLANE_LAMBDA {});
}

// Scales what one share has of its segment by the maximum and the sum of all shares of it, always
// taken in the same order.
template <class D, bool kOrdered>
HWY_INLINE void FinishShare(D d, const Job& job, std::int64_t share) {
  const Shared& mine = job.shared[share];
  const auto of_segment = [&](const float* rows, std::size_t col, auto fill,
                              auto body) ROOFLANE_LAMBDA {
    for (std::int64_t other = 0; other < job.shares; ++other) {
      if (job.shared[other].segment != mine.segment) continue;
      body(other, hc::LoadRow(d, rows + other * job.share_stride + col, fill));
    }
  };
  hc::ForVectors(d, job.cols, [&](std::size_t col, auto fill) ROOFLANE_LAMBDA {
    auto max = hn::Set(d, kLowest);
    of_segment(job.max, col, fill,
               [&](std::int64_t, auto theirs) ROOFLANE_LAMBDA { max = hn::Max(max, theirs); });
    hc::LongSum<D> sum(d);
    auto weight = max;
    of_segment(job.max, col, fill, [&](std::int64_t other, auto theirs) ROOFLANE_LAMBDA {
      const auto factor = hc::ExpNonPositive(d, hn::Sub(theirs, max));
      if (other == share) weight = factor;
      const auto terms = hc::LoadRow(d, job.sum + other * job.share_stride + col, fill);
      sum.Add(hn::Mul(factor, terms));
    });
    Scale(d, PlacesOf<kOrdered>(job), mine.first, mine.last, hn::Div(weight, sum.PerLane()), col,
          fill);
  });
}

// A segment's row of a table: maxima, sums, and what the sums' last additions rounded off.
struct TableRow {
  float* max;
  float* sum;
  float* lost;
};
HWY_INLINE TableRow RowOf(const Job& job, std::int64_t table, std::int64_t segment) {
  float* const max = job.table + (table * job.edges.segments + segment) * job.row_stride;
  return {max, max + job.cols, max + 2 * job.cols};
}

// body(row, x, y, column, fill) for the edges [begin,end) in their given order.
template <class D, class Body>
HWY_INLINE void ForEdges(D d, const Job& job, std::int64_t begin, std::int64_t end,
                         std::int64_t table, Body body) {
  for (std::int64_t e = begin; e < end; ++e) {
    const TableRow row = RowOf(job, table, job.edges.segment[e]);
    const float* const x = job.x + e * job.x_stride;
    float* const y = job.y + e * job.y_stride;
    hc::ForVectors(d, job.cols,
                   [&](std::size_t col, auto fill) ROOFLANE_LAMBDA { body(row, x, y, col, fill); });
  }
}

// The terms of the edges [begin,end), each by the maximum of its segment's edges among them, and
// their table.
template <class D>
HWY_INLINE void FillTable(D d, const Job& job, std::int64_t begin, std::int64_t end,
                          std::int64_t table) {
  for (std::int64_t s = 0; s < job.edges.segments; ++s) {
    const TableRow row = RowOf(job, table, s);
    hc::ForVectors(d, job.cols, [&](std::size_t col, auto fill) ROOFLANE_LAMBDA {
      hc::StoreRow(hn::Set(d, kLowest), d, row.max + col, fill);
      hc::StoreRow(hn::Zero(d), d, row.sum + col, fill);
      hc::StoreRow(hn::Zero(d), d, row.lost + col, fill);
    });
  }
  ForEdges(d, job, begin, end, table,
           [&](const TableRow& row, const float* x, float*, std::size_t col, auto fill)
               ROOFLANE_LAMBDA {
                 const auto max = hc::LoadRow(d, row.max + col, fill);
                 hc::StoreRow(hn::Max(max, hc::LoadRow(d, x + col, fill)), d, row.max + col, fill);
               });
  ForEdges(d, job, begin, end, table,
           [&](const TableRow& row, const float* x, float* y, std::size_t col,
               auto fill) ROOFLANE_LAMBDA {
             const auto max = hc::LoadRow(d, row.max + col, fill);
             const auto term = hc::ExpNonPositive(d, hn::Sub(hc::LoadRow(d, x + col, fill), max));
             hc::StoreRow(term, d, y + col, fill);
             // As LongSum (reduce-inl.h) adds.
             const auto old = hc::LoadRow(d, row.sum + col, fill);
             const auto corrected = hn::Sub(term, hc::LoadRow(d, row.lost + col, fill));
             const auto sum = hn::Add(old, corrected);
             hc::StoreRow(hn::Sub(hn::Sub(sum, old), corrected), d, row.lost + col, fill);
             hc::StoreRow(sum, d, row.sum + col, fill);
           });
}

// The maxima of the segments [begin,end) become what scales the terms of each table.
template <class D>
HWY_INLINE void MergeTables(D d, const Job& job, std::int64_t begin, std::int64_t end) {
  for (std::int64_t s = begin; s < end; ++s) {
    hc::ForVectors(d, job.cols, [&](std::size_t col, auto fill) ROOFLANE_LAMBDA {
      auto max = hn::Set(d, kLowest);
      for (std::int64_t t = 0; t < job.tables; ++t) {
        max = hn::Max(max, hc::LoadRow(d, RowOf(job, t, s).max + col, fill));
      }
      hc::LongSum<D> sum(d);
      for (std::int64_t t = 0; t < job.tables; ++t) {
        const TableRow row = RowOf(job, t, s);
        const auto theirs = hc::LoadRow(d, row.max + col, fill);
        const auto factor = hc::ExpNonPositive(d, hn::Sub(theirs, max));
        const auto terms =
            hn::Sub(hc::LoadRow(d, row.sum + col, fill), hc::LoadRow(d, row.lost + col, fill));
        sum.Add(hn::Mul(factor, terms));
        hc::StoreRow(factor, d, row.max + col, fill);
      }
      const auto total = sum.PerLane();
      for (std::int64_t t = 0; t < job.tables; ++t) {
        float* const factor = RowOf(job, t, s).max + col;
        hc::StoreRow(hn::Div(hc::LoadRow(d, factor, fill), total), d, factor, fill);
      }
    });
  }
}

template <class D>
HWY_INLINE void ScaleEdges(D d, const Job& job, std::int64_t begin, std::int64_t end,
                           std::int64_t table) {
  ForEdges(d, job, begin, end, table,
           [&](const TableRow& row, const float*, float* y, std::size_t col, auto fill)
               ROOFLANE_LAMBDA {
                 const auto scale = hc::LoadRow(d, row.max + col, fill);
                 hc::StoreRow(hn::Mul(hc::LoadRow(d, y + col, fill), scale), d, y + col, fill);
               });
}

// The segments at places [begin,end), but for what their shares have to be finished for.
void SoftmaxPiece(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t piece) {
  hc::WithVectors(job.cols, [&](auto d) ROOFLANE_LAMBDA {
    if (job.edges.order == nullptr) {
      Piece<decltype(d), false>(d, job, begin, end, piece);
    } else {
      Piece<decltype(d), true>(d, job, begin, end, piece);
    }
  });
}

void FinishPiece(const Job& job, std::int64_t piece) {
  hc::WithVectors(job.cols, [&](auto d) ROOFLANE_LAMBDA {
    for (const std::int64_t share : {2 * piece, 2 * piece + 1}) {
      if (job.shared[share].segment < 0) continue;
      if (job.edges.order == nullptr) {
        FinishShare<decltype(d), false>(d, job, share);
      } else {
        FinishShare<decltype(d), true>(d, job, share);
      }
    }
  });
}

void FillOne(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t table) {
  hc::WithVectors(job.cols, [&](auto d) ROOFLANE_LAMBDA { FillTable(d, job, begin, end, table); });
}

void MergeSegments(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t) {
  hc::WithVectors(job.cols, [&](auto d) ROOFLANE_LAMBDA { MergeTables(d, job, begin, end); });
}

void ScaleOne(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t table) {
  hc::WithVectors(job.cols, [&](auto d) ROOFLANE_LAMBDA { ScaleEdges(d, job, begin, end, table); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::segment_softmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::segment_softmax {

HWY_EXPORT(SoftmaxPiece);
HWY_EXPORT(FinishPiece);
HWY_EXPORT(FillOne);
HWY_EXPORT(MergeSegments);
HWY_EXPORT(ScaleOne);

namespace {

constexpr Tunable tunables[] = {
    {"path",
     "0: segment by segment, not sorted after finding that order; 1: not sorted, by tables of "
     "maxima and sums, one for each thread",
     0, 1},
};

// Floats from one row of shares to the next.
std::int64_t share_stride(std::int64_t cols) { return (cols + 15) / 16 * 16; }

// Floats from one row of a table to the next: short rows do not straddle cache lines.
std::int64_t row_stride(std::int64_t cols) {
  const auto floats = static_cast<std::uint64_t>(3 * cols);
  return static_cast<std::int64_t>(floats < 16 ? std::bit_ceil(floats) : (floats + 15) / 16 * 16);
}

// By tables where rows are whole vectors, shorter than the cache lines that the order fetches for
// them, and the tables stay in L3 beside the edges; or where longer rows on one thread have a table
// that stays in its L2.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const std::int64_t cols = problem.size("cols");
  const double threads = common::segment_threads(problem, env);
  const double table = problem.value("segments") * static_cast<double>(row_stride(cols));
  const bool fits = cols == 4 || cols == 8 ? common::stay_in_l3(threads * table)
                                           : cols > 8 && threads == 1 && common::stay_in_l2(table);
  const bool merges_little = 2 * threads * problem.value("segments") <= problem.value("edges");
  return common::paths(problem, fits && merges_little);
}

class HwyPlan final : public common::HwySegmentPlan<Job> {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : HwySegmentPlan(problem, tuning, env),
        softmax_(ROOFLANE_HWY_FUNCTION(SoftmaxPiece, target_)),
        finish_(ROOFLANE_HWY_FUNCTION(FinishPiece, target_)),
        fill_(ROOFLANE_HWY_FUNCTION(FillOne, target_)),
        merge_(ROOFLANE_HWY_FUNCTION(MergeSegments, target_)),
        scale_(ROOFLANE_HWY_FUNCTION(ScaleOne, target_)) {
    const std::int64_t cols = problem.size("cols");
    if (other_way_) {
      job_.tables = threads_;
      job_.row_stride = row_stride(cols);
      workspace_ = Buffer(
          static_cast<std::size_t>(job_.tables * problem.size("segments") * job_.row_stride) *
          sizeof(float));
      job_.table = workspace_.f32();
      return;
    }
    job_.share_stride = share_stride(cols);
    job_.shares = 2 * pieces_;
    shared_.resize(static_cast<std::size_t>(job_.shares));
    job_.shared = shared_.data();
    const std::int64_t floats = job_.shares * job_.share_stride;
    workspace_ = Buffer(static_cast<std::size_t>(2 * floats) * sizeof(float));
    job_.max = workspace_.f32();
    job_.sum = job_.max + floats;
  }

  void run() override {
    if (other_way_) {
      for_shares(job_.edges.edges, fill_);
      for_shares(job_.edges.segments, merge_);
      for_shares(job_.edges.edges, scale_);
      return;
    }
    for_pieces(softmax_);
    if (pieces_ == 1) return;
    parallel_for_static(pool_, threads_, pieces_,
                        [&](std::int64_t piece, int) { finish_(job_, piece); });
  }

 protected:
  std::size_t workspace_bytes() const override {
    return workspace_.bytes() + shared_.size() * sizeof(shared_[0]);
  }

 private:
  using Part = decltype(&HWY_STATIC_DISPATCH(FillOne));
  // A share of so many edges or segments for each thread.
  void for_shares(std::int64_t count, Part part) {
    if (threads_ == 1) return part(job_, 0, count, 0);
    parallel_for_static(pool_, threads_, threads_, [&](std::int64_t share, int) {
      part(job_, common::piece_start(count, threads_, share),
           common::piece_start(count, threads_, share + 1), share);
    });
  }

  decltype(&HWY_STATIC_DISPATCH(SoftmaxPiece)) softmax_;
  decltype(&HWY_STATIC_DISPATCH(FinishPiece)) finish_;
  Part fill_, merge_, scale_;
  Buffer workspace_;
  std::vector<Shared> shared_;
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

}  // namespace rooflane::segment_softmax
#endif  // HWY_ONCE
