// Builds a row from the measurements of a case: statistics, cost, ceilings, the strict roof. Pure;
// group_runner.hpp measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/groups.hpp"
#include "io/measured_rows.hpp"
#include "measure/roofline.hpp"
#include "measure/worker.hpp"

namespace rooflane {

// All that is known of one case when its group ends.
struct Measured {
  const GroupCase* planned = nullptr;
  Status status = Status::passed;
  std::string reason;
  std::optional<Opened> opened;
  std::optional<Verification> verification;
  Calibration calibration;
  std::vector<double> ns;               // one a round
  std::vector<double> probe_ns;         // of the same rounds
  MeasuredRow taken;                    // the samples themselves; its row is not yet made
  int repeats = 0;                      // samples taken again because something interfered
  std::string stop;                     // why sampling ended
  Samples device;                       // lists beside ns; empty on a CPU
  std::optional<PhaseProfile> profile;  // of the last launch, where phases are recorded
  std::int64_t peak_rss_bytes = 0;
  std::string affinity;
  double rounds_seconds = 0;  // that the rounds of its group took, with all its cases

  bool is_cold() const { return planned->measured.cache == CacheMode::cold; }
};

// Adds a sample that was taken before.
void add_sample(Measured& measured, const Sample& sample);

// The roof of a measured case at its own target, threads and device; nothing when it has none.
std::optional<Roof> roof_of(const Measured& measured, const Ceilings& ceilings);

// True when p50 beats the strict roof by more than max(3 %, noise).
bool beats_roof(const Measured& measured, const Ceilings& ceilings);

// Share of the roof in per cent, one value a round. Where the round's probe shows that the machine
// ran slower or faster, the roof moves with it: roof_ns × (probe / median probe) / ns; on a device
// other than a CPU the roof stays.
std::vector<double> roof_percentages(const Measured& measured, double roof_ns);

// `stamp` holds the cells that are equal in every row.
Row assemble_row(const Measured& measured, const Group& group, const Row& stamp,
                 const Ceilings& ceilings);

// The problem of a row of this build. Throws Error where no kernel is so called, or where it takes
// no such problem.
Problem problem_of(const Row& row, const Catalogue& catalogue);

}  // namespace rooflane
