// Sum by segment: what the variants of this room share. The record and the reference are in
// reference.cpp.
//
//   y[s,j] = sum of x[e,j] over the edges e with segment[e] = s
//   x: [edges,cols], segment: int32 [edges], y: [segments,cols]
//
// A graph network's messages: an edge's row goes to the node that it leads to. A segment without
// edges gives zeros. sorted=1 promises that segments ascend, so that the edges of one are adjacent.
// Values: NaN and infinities spread as in any sum.
// Ids: 0 <= segment < segments. Plans trust that, and the promise: `run` of the command line and
// seeds see to it, other callers must (core/domain.hpp).
// Order: every variant adds a segment's edges in an order that depends on nothing but the problem
// and its number of threads: the same run gives the same bits.
// Cost: 1 flop an element of x; x, segment and y once each.
// Tolerance, d being the segment's edges: |error| <= (8 + sqrt(d))·u·Σ|x|, u = 2^-24, as for any
// sum of d terms in float32 with random roundings; plain sums may lose as much again.
//
// What hwy does. Sorted: threads take pieces of the edges; a segment that goes on from the piece
// before is summed into a row of its own there and added at the end. Not sorted: the edges' order
// is found first, by counting, and then as before (path 0); or every edge's row is added to that of
// its segment, which needs no order where the rows of y stay in cache, columns shared among threads
// (path 1).
#pragma once

#include "core/variant.hpp"

namespace rooflane::segment_sum {

inline constexpr DType operand_types[] = {&float32, &int32};

}  // namespace rooflane::segment_sum
