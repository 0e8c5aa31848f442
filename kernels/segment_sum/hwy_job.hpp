// What a run of segment_sum's hwy works on. Beside hwy.cpp, which is compiled once per ISA target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/segments.hpp"

namespace rooflane::segment_sum {

struct Job : common::SegmentJob {
  // For each piece: the partial row that its first segment continues, and that segment (-1: none).
  float* carry = nullptr;
  std::int64_t carry_stride = 0;
  std::int64_t* carry_segment = nullptr;
};

}  // namespace rooflane::segment_sum
