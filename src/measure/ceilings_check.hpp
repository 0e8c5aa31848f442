// Cross-checks of measured ceilings, against each other and against the hardware's known limits
// (known_limits). check_ceilings is arithmetic. Internal to src/measure. scripts/check_ceilings.py
// compares with other programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "measure/ceilings.hpp"

namespace rooflane {

// What one FMA ceiling cannot exceed, from clock and units.
struct KnownLimit {
  std::string isa;  // isa, threads and device name the ceiling
  int threads = 1;
  std::string device;
  double gflops = 0;
  std::string how;  // "4.15 GHz x 2 ports x 16 lanes x 2"
};

// Points of a curve that a larger footprint outruns by more than 5 %, which disturbances do and
// memory should not: one line a loop, naming the points. Empty for a curve that falls as it should.
// Roofs do not suffer: there a point counts with the best of all larger ones (ceilings.cpp).
std::vector<std::string> curve_warnings(const BandwidthCurve& curve);

// Sets notes and warnings of `ceilings`, in place of those it has: curve_warnings of every curve;
// every FMA peak that has a limit beside it (a warning when 5 % above); every device that is the
// CPU beside the CPU's own best peak at as many threads (a warning when 5 % above: then the CPU's
// is too low); a GPU below half of its limit.
void check_ceilings(Ceilings& ceilings, std::span<const KnownLimit> limits);

// The clock at this moment, from products that wait for each other; 2 ms. 0 where the CPU's
// latencies are not known. Virtual machines hide cpufreq, and what /proc/cpuinfo shows there is the
// nominal clock, below what turbo reaches.
double measure_clock_ghz();

// The limits of the requested ceilings. CPU (x86): the highest clock that cpufreq names, else
// `clock_ghz`, × 2 ports × lanes × 2. Devices: DeviceFacts::peak_gflops, where the driver reports
// enough.
std::vector<KnownLimit> known_limits(const CeilingsRequest& request, double clock_ghz);

}  // namespace rooflane
