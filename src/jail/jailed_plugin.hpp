// A plugin in a jail: a runner (runner.cpp) loads its library, never this process. This process
// owns the operands, takes the time, and compares; it checks the runner's answers like an untrusted
// file.
#pragma once

#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "jail/jail.hpp"
#include "rooflane/variant.h"

namespace rooflane::jail {

struct JailedPlugin {
  std::string name;     // of the variant
  std::string folder;   // holds the runner and the library; the jail sees it read-only
  std::string library;  // the file's name there
  Kind kind = Kind::bubblewrap;
  // CPUs of the machine: one that the kernel does not use watches its calls.
  std::vector<int> cpus;
  // Where facts of each plan are appended, a JSON object a line; empty: nowhere.
  std::string report;
  double call_seconds = 20;  // a call that takes longer is ended
  // Loading and planning, too. A plugin's plan may have a driver compile its own OpenCL program: a
  // second or two where nothing else runs, and more than five on a busy machine.
  double plan_seconds = 20;
};

// The same as text for another process, a file at `path`. Throw Error.
void write_jailed_plugin(const JailedPlugin& plugin, const std::string& path);
JailedPlugin read_jailed_plugin(const std::string& path);

// Loads it in a jail and adds its variants to the catalogue. From now on this process's buffers
// are shared memory. Throws Error.
void load_jailed(Catalogue& catalogue, const JailedPlugin& plugin);

// The variants as a runner described them, with functions that ask a runner; until the next call.
// Whether they make sense, plugin_table.hpp says.
struct Answer;
const rooflane_plugin* take_description(const Answer& answer);

// A problem with all its parameters, as reports name it.
std::string full_text(const Problem& problem);

// The beginning of reasons that concern the kernel's process, not its results.
inline constexpr const char* crashed = "crash: ";
inline constexpr const char* hung = "timeout: ";

}  // namespace rooflane::jail
