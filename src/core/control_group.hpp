// What control groups (cgroups(7)), of version 1 or 2, allow this process: its own group and every
// one above it, as far as they are mounted, since the tightest holds (Slurm, systemd-run,
// containers). `root` is a prefix of all paths; "" is this machine.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflane {

// Folders of the groups that `controller` ("memory", "cpu") rules, innermost first.
struct ControlGroups {
  int version = 2;
  std::vector<std::string> folders;
};

// Both versions where both are mounted; the controller is bound to one of them, and the files of
// the other are not there.
std::vector<ControlGroups> control_groups(std::string_view controller,
                                          const std::string& root = "");

// Bytes; the largest number where there is no limit.
std::size_t control_group_limit(const std::string& root = "");
// Bytes until the first group is full, file pages that were not used lately being free.
std::size_t control_group_free(const std::string& root = "");
// CPUs that the groups allow on average; nothing without a quota.
std::optional<double> control_group_cpus(const std::string& root = "");

}  // namespace rooflane
