// Problems that slow this machine down, and the commands that fix them. `doctor` prints all;
// `bench` prints those that disturb a measurement and keeps them with its rows.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/catalogue.hpp"

namespace rooflane {

struct Slowdown {
  std::string what;  // one line
  std::string fix;   // a shell command, or words where no command helps
};

// What disturbs a measurement. Reads /proc, /sys and /etc below `root` ("" for the machine itself),
// so that tests can build a machine. Takes 0.3 s where there is a /proc/stat.
std::vector<Slowdown> find_slowdowns(const std::string& root);

// OpenBLAS libraries of the catalogue that choose a slower core type for this CPU. Opens them.
std::vector<Slowdown> find_library_slowdowns(const Catalogue& catalogue);
// `description` as the library words it ("OpenBLAS 0.3.21 Haswell"), `best` the environment it runs
// best with (cblas::best_environment). Nothing when it already does.
std::optional<Slowdown> core_type_slowdown(
    const std::string& description, const std::vector<std::pair<std::string, std::string>>& best);

// Cards without the OpenCL driver that would make them devices, or no driver at all. The loader
// learns of drivers from the files of `vendors_folder`, which lies below `root` as well.
std::vector<Slowdown> find_missing_drivers(
    const std::string& root, const std::string& vendors_folder = "/etc/OpenCL/vendors");
// Whether this machine has a card of a vendor with OpenCL drivers that we know.
bool has_card(const std::string& root);

// All of the above on this machine.
std::vector<Slowdown> slowdowns_here(const Catalogue& catalogue);

// Share of the CPU time that the hypervisor gave to others between two texts of /proc/stat.
double steal_share(const std::string& before, const std::string& after);
// How many CPUs' time was spent between two texts of /proc/stat, without what was stolen.
double busy_cpus(const std::string& before, const std::string& after);
// How much of its time each CPU was busy between two texts of /proc/stat, by CPU number.
std::vector<double> busy_shares(const std::string& before, const std::string& after);

}  // namespace rooflane
