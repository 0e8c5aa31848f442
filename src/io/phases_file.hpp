// Where the time of rows' runs went, beside a CSV of rows: FILE.csv.phases.csv, for `roofline
// --explain`. Times are nanoseconds of one run.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/phase_recorder.hpp"
#include "io/csv.hpp"

namespace rooflane {

std::string phases_path(const std::string& csv_path);  // FILE.csv.phases.csv

// Columns `row,thread,what,ns,count`. `row` counts the rows of the CSV from 0. `what` is a phase of
// a thread (count: how often it came); or, without thread, `recorded` and `plain`: a run with the
// recorder (count: the runs) and without; or a hardware counter (count alone).
class PhasesWriter {
 public:
  explicit PhasesWriter(const std::string& path);  // truncates
  void append(std::int64_t row, const PhaseProfile& profile);

 private:
  LineFile file_;
};

// By row; no events. Throws Error(argument) naming file and line. Half a line at the end, as a
// killed run leaves it, is left out.
std::map<std::int64_t, PhaseProfile> read_phases(const std::string& path);

}  // namespace rooflane
