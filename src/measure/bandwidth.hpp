// Measures a bandwidth curve of the CPU: read, write and copy over footprint. Internal to
// src/measure; the result is part of Ceilings.
#pragma once

#include <cstddef>
#include <functional>

#include "measure/ceilings.hpp"

namespace rooflane {

inline constexpr int bandwidth_points = 24;

// The largest footprint worth measuring here: four times the reported last-level cache, at least
// 256 MiB (a virtual machine's report may be too small), at most 1 GiB or twice that cache (it may
// be far too large), and never more than a quarter of the memory that is available now.
std::size_t largest_bandwidth_footprint();

// The curve at this thread count, from 16 KiB a thread to `largest_footprint` (raised to 1 MiB a
// thread if less), in about `seconds`; less time means fewer repeats, never fewer points. All
// threads work on their own share, touched first by themselves, in huge pages.
//
// Two thirds of the points rise geometrically; the others halve the steps where bandwidth falls
// most, because between two points the curve is interpolated. Each point is the best of
// {1, 4, 8 streams} × {plain, non-temporal stores} × {cyclic, there and back} over repeats, so that
// no kernel finds more in the caches than the best of them; at last, points that a larger footprint
// outran are measured again, for only a disturbance explains them.
//
// `progress(done)` with done in [0,1] is called between points. Throws Error(unavailable) when
// fewer threads run than asked for.
BandwidthCurve measure_bandwidth(int threads, std::size_t largest_footprint, double seconds,
                                 const std::function<void(double done)>& progress);

}  // namespace rooflane
