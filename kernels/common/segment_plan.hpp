// The plan of segment_sum and segment_softmax on Highway: finds the order of edges, cuts their
// places into pieces and shares these among threads. What a piece becomes is the room's (hwy.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "backends/highway.hpp"
#include "core/machine.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/common/segments.hpp"

namespace rooflane::common {

// The tunable `path` is 0: segment by segment, or 1: the room's other way, for edges that are not
// sorted.
inline std::optional<std::string> path_defect(const Problem& problem, const Tuning& tuning,
                                              const Environment&) {
  if (tuning.get("path", 0) == 0 || !problem.flag("sorted")) return std::nullopt;
  return "path=1 takes segments that are not sorted";
}
// Both, the one that is likely faster first.
inline std::vector<Tuning> paths(const Problem& problem, bool other_way) {
  if (problem.flag("sorted")) return {{{"path", 0}}};
  return {{{"path", other_way}}, {{"path", !other_way}}};
}
inline int segment_threads(const Problem& problem, const Environment& env) {
  return useful_threads(env.threads, problem.size("edges"), problem.size("cols"));
}
// Whether so many float32 stay in half of a core's L2, in a quarter of a package's L3.
inline bool stay_in_l2(double floats) {
  return 4 * floats <= static_cast<double>(machine().l2_bytes) / 2;
}
inline bool stay_in_l3(double floats) {
  return 4 * floats <= static_cast<double>(machine().l3_bytes) / 4;
}

template <class Job>
class HwySegmentPlan : public Plan {
 public:
  HwySegmentPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        threads_(segment_threads(problem, env)),
        pool_(env.pool),
        target_(resolve_isa(env.isa)),
        other_way_(tuning.get("path", 0) == 1),
        tuning_(tuning),
        sorted_(problem.flag("sorted")) {
    const std::int64_t edges = problem.size("edges"), cols = problem.size("cols");
    job_.cols = static_cast<std::size_t>(cols);
    if (other_way_) return;
    job_.prefetch = !stay_in_l2(static_cast<double>(edges) * static_cast<double>(cols));
    if (!sorted_) order_ = SegmentOrder(edges, problem.size("segments"), threads_);
    pieces_ = edge_pieces(threads_, edges, cols);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    facts.workspace_bytes = order_.bytes() + workspace_bytes();
    return facts;
  }

 protected:
  virtual std::size_t workspace_bytes() const = 0;  // without the order
  void on_bind(const Operands& operands) override {
    const View &x = operands.at("x"), &y = operands.at("y");
    job_.edges = {.segment = operands.at("segment").as<std::int32_t>(),
                  .edges = x.shape[0],
                  .segments = problem().size("segments")};
    job_.x = x.f32();
    job_.x_stride = x.strides[0];
    job_.y = y.f32();
    job_.y_stride = y.strides[0];
  }
  // body(job, begin, end, piece) for the places of every piece, in the order of their segments.
  template <class Body>
  void for_pieces(Body body) {
    if (!sorted_) {
      order_.find(pool_, job_.edges.segment);
      const Edges ordered = order_.edges(job_.edges.segment);
      job_.edges.order = ordered.order;
      job_.edges.start = ordered.start;
    }
    const std::int64_t edges = job_.edges.edges;
    if (pieces_ == 1) return body(job_, 0, edges, 0);
    parallel_for_static(pool_, threads_, pieces_, [&](std::int64_t piece, int) {
      body(job_, piece_start(edges, pieces_, piece), piece_start(edges, pieces_, piece + 1), piece);
    });
  }

  int threads_;
  Pool* pool_;
  std::int64_t target_;
  bool other_way_;
  std::int64_t pieces_ = 1;
  Job job_;

 private:
  Tuning tuning_;
  bool sorted_;
  SegmentOrder order_;
};

}  // namespace rooflane::common
