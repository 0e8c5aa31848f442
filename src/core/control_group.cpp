// Reads /proc/self/mountinfo, /proc/self/cgroup and the groups' files. See control_group.hpp.
#include "core/control_group.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/text.hpp"

namespace rooflane {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

struct Mount {
  int version = 2;
  std::string group;  // what of the hierarchy is mounted: "/", or a container's group
  std::string folder;
};

// Whether it is among words with commas between them.
bool names_one(std::string_view words, std::string_view word) {
  const auto all = split(words, ',');
  return std::find(all.begin(), all.end(), word) != all.end();
}

// "36 35 98:0 GROUP FOLDER rw,noatime master:1 - cgroup cgroup rw,memory": proc(5).
std::optional<Mount> parse_mount(const std::string& line, std::string_view controller) {
  const std::size_t dash = line.find(" - ");
  if (dash == std::string::npos) return std::nullopt;
  std::string skipped, type, options;
  Mount mount;
  std::istringstream(line.substr(dash + 3)) >> type >> skipped >> options;
  std::istringstream(line) >> skipped >> skipped >> skipped >> mount.group >> mount.folder;
  if (type == "cgroup2") return mount;
  if (type != "cgroup" || !names_one(options, controller)) return std::nullopt;
  mount.version = 1;
  return mount;
}

// This process's group: "0::/PATH" in version 2, "4:cpu,cpuacct:/PATH" in version 1.
std::string own_group(const std::string& root, int version, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (version == 2 ? names.empty() : names_one(names, controller)) return line.substr(second + 1);
  }
  return "/";
}

// The part of `group` below `mounted`; empty where it is not below it, as of a process that was
// moved out of its namespace ("/../job").
std::string below(const std::string& group, const std::string& mounted) {
  const std::string top = mounted == "/" ? "" : mounted;
  if (group.rfind(top + "/", 0) != 0 || group.find("/..") != std::string::npos) return "";
  const std::string path = group.substr(top.size());
  return path == "/" ? "" : path;
}

std::optional<std::size_t> number_in(const std::string& path) {
  std::size_t value = 0;
  if (std::ifstream(path) >> value) return value;
  return std::nullopt;  // "max" of version 2 as well
}

// What the group holds and would not give back.
std::size_t memory_used(const std::string& folder, int version) {
  const std::string name = version == 2 ? "/memory.current" : "/memory.usage_in_bytes";
  const std::size_t used = number_in(folder + name).value_or(0);
  const std::string_view droppable = version == 2 ? "inactive_file" : "total_inactive_file";
  std::ifstream statistics(folder + "/memory.stat");
  std::size_t bytes = 0;
  for (std::string key; statistics >> key >> bytes;) {
    if (key == droppable) return used - std::min(used, bytes);
  }
  return used;
}

// Calls `see` with the limit of each group that has one, its folder and its version. Version 1
// writes a number beyond all memory where there is none.
template <class See>
void for_each_limit(const std::string& root, See&& see) {
  for (const ControlGroups& groups : control_groups("memory", root)) {
    const char* name = groups.version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    for (const std::string& folder : groups.folders) {
      if (const auto limit = number_in(folder + name)) see(*limit, folder, groups.version);
    }
  }
}

// The quota of one group: "50000 100000" in version 2; -1 or "max" means none.
std::optional<double> quota_cpus(const std::string& folder, int version) {
  std::string allowed;
  double period = 0;
  if (version == 2) {
    std::ifstream(folder + "/cpu.max") >> allowed >> period;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> allowed;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  const auto microseconds = parse_real(allowed);
  if (!microseconds || *microseconds <= 0 || period <= 0) return std::nullopt;
  return *microseconds / period;
}

}  // namespace

std::vector<ControlGroups> control_groups(std::string_view controller, const std::string& root) {
  std::vector<ControlGroups> all;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const auto mount = parse_mount(line, controller);
    if (!mount) continue;
    ControlGroups groups{mount->version, {}};
    const std::string top = root + mount->folder;
    std::string path = below(own_group(root, mount->version, controller), mount->group);
    for (; !path.empty(); path.erase(path.rfind('/'))) groups.folders.push_back(top + path);
    groups.folders.push_back(top);
    all.push_back(std::move(groups));
  }
  return all;
}

std::size_t control_group_limit(const std::string& root) {
  std::size_t least = no_limit;
  for_each_limit(
      root, [&](std::size_t limit, const std::string&, int) { least = std::min(least, limit); });
  return least;
}

std::size_t control_group_free(const std::string& root) {
  std::size_t least = no_limit;
  for_each_limit(root, [&](std::size_t limit, const std::string& folder, int version) {
    least = std::min(least, limit - std::min(limit, memory_used(folder, version)));
  });
  return least;
}

std::optional<double> control_group_cpus(const std::string& root) {
  std::optional<double> least;
  for (const ControlGroups& groups : control_groups("cpu", root)) {
    for (const std::string& folder : groups.folders) {
      const auto cpus = quota_cpus(folder, groups.version);
      if (cpus && (!least || *cpus < *least)) least = cpus;
    }
  }
  return least;
}

}  // namespace rooflane
