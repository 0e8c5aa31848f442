// Finds the memory levels in a measured bandwidth curve. Pure arithmetic on the curve; the sizes
// that the system reports only help to name what was found.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "measure/ceilings.hpp"

namespace rooflane {

// In place of a cache's size: a level that the curve does not see.
inline constexpr double no_such_level = -1;

// Splits the curve into at most four runs of points with nearly constant bandwidth, as in a
// least-squares fit of a staircase to the logarithms of read, write and copy together: of all ways
// to cut the points into k runs of two points or more, the one with the least sum of squared
// deviations from each run's means; k is the largest for which every step goes down by a factor of
// 1.25 or more (geometric mean of the three). Single points on a slope thus join the level they are
// nearer.
//
// The last run is labelled memory. Three runs before it are L1, L2, L3; of fewer runs each takes
// the label with the reported size nearest to its end, in rising order (`cache_bytes`: L1, L2, L3
// of all threads together, 0 unknown, no_such_level: neither a run nor a label). Points must be
// sorted; one plateau when there is no step, none when there are no points.
std::vector<Plateau> find_plateaus(std::span<const BandwidthPoint> points,
                                   const std::array<double, 3>& cache_bytes);

}  // namespace rooflane
