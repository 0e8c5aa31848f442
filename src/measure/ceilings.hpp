// Ceilings: measuring the limits of this machine, and looking them up. core/ceilings.hpp has the
// data.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.hpp"
#include "core/ceilings.hpp"
#include "core/parallel.hpp"

namespace rooflane {

struct CeilingsRequest {
  std::vector<int> threads = {1};
  std::vector<std::string> isas;  // empty: every target of this CPU
  std::vector<DeviceId> devices;
  double seconds = 20;  // budget for everything asked for
  // Bandwidth is measured up to this footprint; 0: beyond all caches.
  std::size_t largest_footprint = 0;
  std::function<void(double done, const std::string& what)> progress;  // done in [0,1]; may be null
};

// Uses the calling thread and the default pool. One measurement at a time. A budget above what the
// measurements need (about 7 s per thread count) is not used up; a smaller one means fewer repeats.
// Throws Error: threads below 1, an unknown target (argument); a target that this CPU lacks, fewer
// threads than asked for, a device that is not there (unavailable).
Ceilings measure_ceilings(const CeilingsRequest& request);

// Raises `known` to the rates of `again`: a rate that was reached once is the limit. Two curves at
// the same threads and device become one, the upper at every footprint of either.
void keep_better(Ceilings& known, const Ceilings& again);

// FMA peak at these settings; nothing when it was not measured. Empty isa: the best of them. A
// device's peak with threads 0 serves any count.
std::optional<double> find_fma_peak(const Ceilings& ceilings, std::string_view math,
                                    std::string_view isa, int threads, std::string_view device);

// What the products of a row can reach: the FMA peak above, and on the CPU, where a math has units
// of its own, that of the unit that the row's `path` names, else the best of them at any ISA
// target; int8-dynamic multiplies as int8, and bf16 and f16 without units as fp32. On a device with
// units for the math only that of the `path`.
std::optional<double> find_compute_peak(const Ceilings& ceilings, std::string_view math,
                                        std::string_view isa, int threads, std::string_view device,
                                        std::string_view path = {});

// What a launch alone takes on a device; nothing when it was not measured. A device's with threads
// 0 serves any count.
std::optional<LaunchCeiling> find_launch(const Ceilings& ceilings, int threads,
                                         std::string_view device);

// Rates at these settings, each the best where isa is empty; nothing when they were not measured.
// A device's rates with threads 0 serve any count: its exps and unfused operations have units of
// their own.
std::optional<RateCeiling> find_rates(const Ceilings& ceilings, std::string_view isa, int threads,
                                      std::string_view device);

// Bandwidth in GB/s that a kernel reading (1-w) and writing w of its bytes can reach at most at
// this footprint, with R, W, C the interpolated read, write and copy curves:
//   min(R/(1-w), W/w, cap(w)), cap = max(C, line from R at w=0 over C at w=1/2 to W at w=1),
// where R and W are at least C/2 (a copy reads C/2 and writes C/2), so that w=1/2 gives C.
// Interpolated over log(footprint); the end points hold beyond the measured range. Nothing when no
// curve was measured at these threads. A device's curve with threads 0 serves any count.
struct MemoryPeak {
  double gb_s = 0;
  std::string level;  // the plateau's label
};
std::optional<MemoryPeak> find_memory_peak(const Ceilings& ceilings, double footprint_bytes,
                                           double write_fraction, int threads,
                                           std::string_view device);
// The label of the plateau that a footprint lies on; empty for a curve without plateaus.
std::string plateau_at(const BandwidthCurve& curve, double footprint_bytes);
// Footprint beyond which bandwidth is memory's: the largest footprint of the last but one plateau.
std::optional<double> find_knee(const Ceilings& ceilings, int threads);

// A probe: a short fixed piece of work. Its time follows the machine's momentary speed. One call is
// one timing in nanoseconds (about 1 ms of work). Memory is allocated and touched the first time a
// thread count or footprint is used, and kept. Not for two threads at once.
double probe_fma_ns(int threads);
double probe_copy_ns(double footprint_bytes, int threads);

}  // namespace rooflane
