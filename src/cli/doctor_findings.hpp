// What `doctor` finds out about this machine and build; doctor.cpp prints it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/slowdowns.hpp"
#include "core/catalogue.hpp"

namespace rooflane {

struct FoundLibrary {
  std::string variant;
  std::optional<std::string> absent;
  std::string description, path;
  std::vector<std::pair<std::string, std::string>> environment;  // what workers run it with
};

struct IsaTarget {
  std::string name;
  bool here = false;  // this CPU has it
};

struct FoundDevice {
  int index = 0;
  std::string kind, name, platform, driver;
  int compute_units = 0;
  std::size_t global_bytes = 0, local_bytes = 0;
  std::optional<std::string> failure;  // of a plain kernel: the device is unusable
  std::string features;                // in words; empty where it is unusable
};

struct FoundOpenCl {
  std::string absent;  // why this build knows no device; empty: it looks for them
  std::vector<FoundDevice> devices;
  std::vector<std::pair<std::string, std::string>> broken_drivers;  // file, reason
  std::string programs;  // what the cache of programs on disk holds
};

// What doctor tells, as text and as JSON.
struct Findings {
  std::vector<IsaTarget> targets;
  std::vector<FoundLibrary> libraries;
  FoundOpenCl opencl;
  std::vector<Slowdown> slowdowns;
};

// Opens every CBLAS library of the catalogue, and OpenCL.
Findings find_all(const Catalogue& catalogue);
nlohmann::ordered_json findings_json(const Findings& findings);

// Words of [a-z0-9] joined by '-': CPU model, best ISA target, cores, and the first OpenCL device
// where it is more than the CPU again. Never the host's name. It names a folder of results/.
std::string machine_slug();

}  // namespace rooflane
