// Softmax by segment: what the variants of this room share. The record and the reference are in
// reference.cpp.
//
//   y[e,j] = exp(x[e,j] - max) / sum of exp(x[f,j] - max), over the edges f of e's segment, column
//   by column      x, y: [edges,cols], segment: int32 [edges]
//
// Attention of a graph network: the weights of the edges that lead to one node, a column for each
// head. sorted=1 promises that segments ascend, so that the edges of one are adjacent. `segments`
// bounds the ids; segments without edges have no output. Values as softmax (softmax.hpp) treats a
// row: NaN in a segment's column makes all of it NaN, so does +inf; -inf weighs zero; nothing but
// -inf is NaN. Other segments and columns are untouched. Ids: 0 <= segment < segments. Plans trust
// that, and the promise: `run` of the command line and seeds see to it, other callers must
// (core/domain.hpp). Cost: 5 flops an element (max, subtract, exp counted as one, add, scale), 1
// exp; x, segment and y once each. Tolerance, d being the segment's edges:
// |error| <= (8 + |x - max|)·u·y + 2^-126, u = 2^-24; plain float32 sums may lose
// (8 + sqrt(d))·u·y more.
//
// What hwy does. Columns are lanes: maximum, sum of exps and scale of a segment in registers, its
// edges being read while they are in cache. Sorted: threads take pieces of the edges; a segment
// that two pieces share gets the maximum and sum of each, and is scaled when all are known. Not
// sorted: the order is found first, by counting (path 0); or edges are read as they come, and
// maxima and sums are in tables of [segments,cols], one for each thread, merged before the terms
// are scaled (path 1).
#pragma once

#include "core/variant.hpp"

namespace rooflane::segment_softmax {

inline constexpr DType operand_types[] = {&float32, &int32};

}  // namespace rooflane::segment_softmax
