// What slows this machine down, and the command that mends it. `doctor` prints it.
#pragma once

#include <string>
#include <vector>

namespace rooflane {

struct Slowdown {
  std::string what;  // one line
  std::string mend;  // a shell command, or words where no command helps
};

// Reads /proc and /sys below `root` ("" for the machine itself), so that tests can build a machine.
std::vector<Slowdown> find_slowdowns(const std::string& root);

// Share of the CPU time that the hypervisor gave to others between two texts of /proc/stat.
double steal_share(const std::string& before, const std::string& after);

}  // namespace rooflane
