// Rows as results of airspeed velocity (asv), which publishes and compares them by commit:
// FOLDER/benchmarks.json, FOLDER/MACHINE/machine.json, FOLDER/MACHINE/COMMIT-COMPILER.json.
#pragma once

#include <map>
#include <string>

#include "io/tracking.hpp"

namespace rooflane {

struct AsvTarget {
  std::string folder;                        // results_dir of asv.conf.json; made when missing
  std::string commit;                        // the whole hash
  std::string machine;                       // a name for it
  std::map<std::string, std::string> facts;  // cpu, os, arch, num_cpu, ram; each may be missing
};

// Adds the rows, at least one, of one compiler, to what is there: benchmarks that are there already
// get new results, others keep theirs. Throws Error(argument) for a file that is not asv's or
// cannot be written.
void write_asv(const AsvTarget& target, const TrackedRows& tracked);

}  // namespace rooflane
