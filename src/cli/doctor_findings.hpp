// The findings of `doctor` about this machine and build; doctor.cpp prints them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/slowdowns.hpp"
#include "core/catalogue.hpp"

namespace rooflane {

struct FoundLibrary {
  std::string variant;
  std::optional<std::string> absent;
  std::string description, path;
  Variables environment;  // what workers run it with
};

struct IsaTarget {
  std::string name;
  bool here = false;  // this CPU has it
};

struct FoundDevice {
  DeviceFacts facts;
  std::optional<std::string> failure;  // of a plain kernel: the device is unusable
  std::string features;                // in words; empty where it is unusable
};

// The findings of a backend of this build that runs variants on devices.
struct FoundDevices {
  std::string backend, title;
  std::vector<FoundDevice> devices;
  std::vector<FailedDriver> failed_drivers;
  std::string programs;  // what the cache of programs on disk holds
};

// The findings of doctor, as text and as JSON.
struct Findings {
  std::vector<IsaTarget> targets;
  std::vector<FoundLibrary> libraries;
  std::vector<FoundDevices> device_backends;
  std::vector<AbsentVariant> absent;  // what this build lacks, each reason once
  std::vector<Slowdown> slowdowns;
  std::vector<std::string> unused;             // entries of tuned schedules that serve nothing
  std::vector<std::string> counters;           // of hardware, that a process may read here
  std::optional<std::string> counters_absent;  // why there are none
};

// Opens every library of the catalogue and the drivers of every backend.
Findings find_all(const Catalogue& catalogue);
nlohmann::ordered_json findings_json(const Findings& findings);

// Words of [a-z0-9] joined by '-': CPU model, best ISA target, cores, and the first device
// where it is more than the CPU again. Never the host's name. It names a folder of results/.
std::string machine_slug();
// The words of a text likewise.
std::string plain_slug(std::string text);

}  // namespace rooflane
