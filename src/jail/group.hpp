// A control group (cgroups(7), version 2) of its own for a jail's processes: it limits them
// together and can freeze them. It lies beside this process's own group. With systemd root can make
// one, and an ordinary user can in what `systemd-run --user --scope` starts.
#pragma once

#include <cstdint>
#include <string>

namespace rooflane::jail {

// The folder in which groups may be made; empty: there is none, or this process's own group has
// limits, which a group beside it would not have. `root` is a prefix of all paths; "" is this
// machine.
std::string folder_of_groups(const std::string& root = "");

class Group {
 public:
  // Whether a process can move into a group that is made; tried once.
  static bool can_be_made();
  // Removes the empty groups of processes that were killed.
  static void remove_left_ones();

  // None.
  Group() = default;
  // None where none can be made. 0 processes: any number.
  Group(std::uint64_t memory_bytes, std::uint64_t processes);
  // Ends every process in it.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool exists() const { return !folder_.empty(); }
  // A descriptor: a process that writes 0 to it moves into the group. Below 0: none.
  int procs() const { return procs_; }
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  // Until thaw() none of its processes runs; also not one that begins meanwhile.
  void freeze() const;
  void thaw() const;
  // Whether the limit of memory ended its processes.
  bool ran_out_of_memory() const;

 private:
  std::string folder_;
  int procs_ = -1;
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace rooflane::jail
