// What a run of segment_softmax's hwy works on. Beside hwy.cpp, which is compiled once per ISA
// target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/segments.hpp"

namespace rooflane::segment_softmax {

// A segment that a piece shares with its neighbours: what it has of it.
struct Shared {
  std::int64_t segment = -1;  // none
  std::int64_t first = 0, last = 0;
};

struct Job : common::SegmentJob {
  // Two for each piece, at its beginning and at its end. Each is a row of maxima and a row of sums.
  Shared* shared = nullptr;
  std::int64_t shares = 0;
  float* max = nullptr;
  float* sum = nullptr;
  std::int64_t share_stride = 0;
  // Path 1: for each thread a table, a row for each segment: maxima, sums and what their last
  // additions rounded off.
  float* table = nullptr;
  std::int64_t tables = 0;
  std::int64_t row_stride = 0;
};

}  // namespace rooflane::segment_softmax
