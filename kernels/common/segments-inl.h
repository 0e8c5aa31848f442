// Walks over edges segment by segment, and the rows at their places.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_SEGMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_SEGMENTS_INL_H_
#undef ROOFLANE_KERNELS_COMMON_SEGMENTS_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_SEGMENTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/segments.hpp"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// The places [first,last) of one segment within a piece. `before`, `after`: others of the segment
// belong to the piece before or behind.
struct Run {
  std::int64_t segment, first, last;
  bool before, after;
};

// run(Run) for every segment with places in [begin,end), and empty(from, to) for the segments
// between them that have no edge, each by one piece. Both in ascending order.
template <class RunBody, class EmptyBody>
HWY_INLINE void ForRuns(const Edges& edges, std::int64_t begin, std::int64_t end, RunBody run,
                        EmptyBody empty) {
  if (edges.order == nullptr) {
    std::int64_t known = begin == 0 ? -1 : edges.segment[begin - 1];
    for (std::int64_t at = begin; at < end;) {
      const std::int32_t segment = edges.segment[at];
      std::int64_t last = at + 1;
      while (last < end && edges.segment[last] == segment) ++last;
      if (segment > known + 1) empty(known + 1, std::int64_t{segment});
      const bool after = last == end && end < edges.edges && edges.segment[end] == segment;
      run(Run{segment, at, last, segment == known, after});
      known = segment;
      at = last;
    }
    if (end == edges.edges && known + 1 < edges.segments) empty(known + 1, edges.segments);
    return;
  }
  const std::int32_t* const start = edges.start;
  std::int64_t segment = std::lower_bound(start, start + edges.segments, begin) - start;
  if (begin > 0 && begin < end && start[segment] > begin) {
    const std::int64_t last = std::min<std::int64_t>(start[segment], end);
    run(Run{segment - 1, begin, last, true, start[segment] > end});
  }
  for (; segment < edges.segments && (start[segment] < end || end == edges.edges); ++segment) {
    const std::int64_t first = start[segment], last = start[segment + 1];
    if (first == last) {
      empty(segment, segment + 1);
    } else {
      run(Run{segment, first, std::min(last, end), false, last > end});
    }
  }
}

// Rows of edges by their places. kOrdered: through the order.
template <bool kOrdered>
struct PlacedRows {
  const Edges& edges;
  const float* rows;
  std::int64_t stride;

  HWY_INLINE std::int64_t Edge(std::int64_t place) const {
    if constexpr (kOrdered) return edges.order[place];
    return place;
  }
  HWY_INLINE const float* At(std::int64_t place) const { return rows + Edge(place) * stride; }
};

// Asks for the rows that come 4 KiB behind those of a run: what memory delivers in its latency of
// 100 to 200 ns, and known to nobody but the order.
template <bool kOrdered>
HWY_INLINE void PrefetchBehind(const PlacedRows<kOrdered>& rows, const Run& run, std::size_t cols) {
  if constexpr (kOrdered) {
    const auto distance = static_cast<std::int64_t>(1 + 1023 / cols);
    const std::int64_t last = std::min(run.last + distance, rows.edges.edges);
    for (std::int64_t place = run.first + distance; place < last; ++place) {
      const float* const row = rows.At(place);
      for (std::size_t col = 0; col < cols; col += 16) hwy::Prefetch(row + col);
    }
  }
}

// body(d) for vectors of four or eight columns where rows have no more, else whole ones: a vector
// that is filled needs no mask.
template <class Body>
HWY_INLINE void WithVectors(std::size_t cols, Body body) {
  namespace hn = vectors::HWY_NAMESPACE;
  if (cols <= 4) {
    body(hn::CappedTag<float, 4>());
  } else if (cols <= 8) {
    body(hn::CappedTag<float, 8>());
  } else {
    body(hn::ScalableTag<float>());
  }
}

// body(column, fill) for a row of so many columns, vector by vector; fill is Whole, or Part at the
// end.
template <class D, class Body>
HWY_INLINE void ForVectors(D d, std::size_t cols, Body body) {
  const std::size_t lanes = vectors::HWY_NAMESPACE::Lanes(d);
  std::size_t col = 0;
  for (; col + lanes <= cols; col += lanes) body(col, Whole());
  if (col < cols) body(col, Part{cols - col});
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
