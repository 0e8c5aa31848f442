// Measures the traits of this machine (core/traits.hpp) with the loops of the ceilings. A ceiling
// is the best that any loop reaches; a trait is what a kernel's plain loads and stores find at a
// level.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/traits.hpp"

namespace rooflane {

struct CalibrateRequest {
  int threads = 1;      // "all threads"
  double seconds = 15;  // for everything; a first round of each figure takes 1 to 4 s in any case
  std::function<void(double done, const std::string& what)> progress;  // done in [0,1]; may be null
};

// All figures are measured in rounds until the time is over, each keeping its best (times of
// regions and tasks: their median), so that a neighbour on the same machine must be busy throughout
// to spoil one. Uses the calling thread and the default pool. Throws Error: threads below 1
// (argument), fewer threads than asked for (unavailable).
MeasuredTraits calibrate(const CalibrateRequest& request);

// Where reading slows down: of points with rising footprints the footprint at which the rate,
// interpolated over logarithms, crosses the geometric mean of the first's and the last's. A point
// counts with the best of itself and all larger ones. 0: the last is hardly (a fifth) slower.
struct ReadPoint {
  double footprint_bytes, rate;
};
double find_read_knee(std::span<const ReadPoint> points);

}  // namespace rooflane
