// Edges by segment: what the CPU variants of segment_sum and segment_softmax share. Holds no
// arithmetic: that is in segments-inl.h and in the rooms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/buffer.hpp"
#include "core/parallel.hpp"
#include "core/variant.hpp"

namespace rooflane::common {

// Edges in an order that keeps those of one segment together: the given order if the segments
// ascend, else that of SegmentOrder.
struct Edges {
  const std::int32_t* segment = nullptr;  // of each edge
  const std::int32_t* order = nullptr;    // the edge at each place; null: its number
  const std::int32_t* start = nullptr;    // with order: a segment's first place, [segments+1]
  std::int64_t edges = 0;
  std::int64_t segments = 0;
};

// What a run works on, but for the room's own.
struct SegmentJob {
  Edges edges;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  std::size_t cols = 0;
  bool prefetch = false;  // what is found by ids, x or y, does not stay in L2
};

// A stable counting sort of edges by segment, so that the order, and what is summed in it, is the
// same with any number of threads. All memory is planned.
class SegmentOrder {
 public:
  SegmentOrder() = default;
  SegmentOrder(std::int64_t edges, std::int64_t segments, int threads);

  // Sorts; allocates nothing. Segments lie from 0 to segments-1.
  void find(Pool* pool, const std::int32_t* segment);
  Edges edges(const std::int32_t* segment) const {
    return {segment, at(order_), at(start_), edges_, segments_};
  }
  std::size_t bytes() const { return order_.bytes() + start_.bytes() + counts_.bytes(); }

 private:
  static std::int32_t* at(const Buffer& buffer) {
    return static_cast<std::int32_t*>(const_cast<void*>(buffer.data()));
  }
  std::int64_t edges_ = 0;
  std::int64_t segments_ = 0;
  int threads_ = 1;
  std::int64_t stride_ = 0;  // of counts, from one thread's to the next's
  Buffer order_, start_, counts_;
};

// Pieces that places are cut into, to be handed out: as for_rows (rows.hpp) has it, up to eight a
// thread of at least 16384 elements.
inline std::int64_t edge_pieces(int threads, std::int64_t edges, std::int64_t cols) {
  if (threads == 1) return 1;
  const std::int64_t share = edges * cols / threads;
  const std::int64_t most = std::clamp<std::int64_t>(share / 16384, 1, 8);
  return std::clamp<std::int64_t>(threads * most, 1, std::max<std::int64_t>(edges, 1));
}

// The first place of a piece; of piece `pieces` the end.
inline std::int64_t piece_start(std::int64_t edges, std::int64_t pieces, std::int64_t piece) {
  return edges / pieces * piece + std::min(piece, edges % pieces);
}

}  // namespace rooflane::common
