// A control group (cgroups(7), version 2) of its own for a jail's processes: limits of what they
// take together, and a freezer. It lies beside this process's own group, where systemd lets root
// make one, and others what `systemd-run --user --scope` starts.
#pragma once

#include <cstdint>
#include <string>

namespace rooflane::jail {

// The folder in which groups can be made; empty: this process may make none. `root` is a prefix of
// all paths; "" is this machine.
std::string folder_of_groups(const std::string& root = "");

class Group {
 public:
  // None.
  Group() = default;
  // None where none can be made.
  Group(std::uint64_t memory_bytes, std::uint64_t processes);
  // Ends every process in it.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool exists() const { return !folder_.empty(); }
  // A descriptor: a process that writes 0 to it moves into the group. Below 0: none.
  int door() const { return door_; }
  // Until thaw() none of its processes runs; also not one that begins meanwhile.
  void freeze() const;
  void thaw() const;
  // Whether the limit of memory ended its processes.
  bool ran_out_of_memory() const;

 private:
  std::string folder_;
  int door_ = -1;
};

}  // namespace rooflane::jail
