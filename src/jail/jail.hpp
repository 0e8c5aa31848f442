// The jail in which strangers' code is compiled, loaded and run: bubblewrap's namespaces (no
// network, a read-only system, a /tmp and a process tree of its own), a filter of system calls,
// Landlock where the kernel has it, limits of memory, processes, files and CPU time, and a control
// group (group.hpp) where one can be made.
// SECURITY.md lists what it does not hold off.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "jail/group.hpp"

namespace rooflane::jail {

// unsafe: a process with limits and nothing else, by the user's own wish.
enum class Kind { bubblewrap, unsafe };
std::string_view name_of(Kind kind);  // "bubblewrap", "unsafe"

// What a jail of this machine consists of, and what it might and does not.
struct Means {
  std::vector<std::string> has, lacks;
};
Means means_of(Kind kind);

struct Limits {
  std::uint64_t memory_bytes = 0;  // address space of each process; 0 of each: no limit
  std::uint64_t processes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t cpu_seconds = 0;
};

struct Settings {
  Kind kind = Kind::bubblewrap;
  // A folder that the command finds as inside(): the runner's program lies in it, by this name.
  std::string folder;
  bool folder_writable = false;
  // The command; empty: the runner serves requests on `socket`.
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  // all that it has
  Limits limits;
  int socket = -1;          // becomes descriptor jail::runner_socket; below 0: none
  std::string output_path;  // of standard output and error; empty: nowhere
  bool compiles = false;
};
inline constexpr const char* runner_name = "rooflane-runner";

// The folder's path as the command sees it.
std::string inside(const Settings& settings);
// Where drivers and libraries keep files: the jail's own /tmp. Without a jail /tmp is everybody's,
// and a driver would load what another user had put there.
std::string home_of(Kind kind, const std::string& folder);

// The runner's program, in the folder of this one. Throws Error(unavailable) when it is missing.
std::string runner_program();
// Puts the runner into a folder that everybody may read. Throws Error.
void place_runner(const std::string& folder);

// For a jail's processes, which may take half of the memory that is free now; none where that is
// less than a compiler may take.
Group group_for(Kind kind, std::uint64_t processes);
// Starts the process. It leads a process group, which ends with this process, and is in the control
// group if that exists. Throws Error(unavailable).
pid_t start(const Settings& settings, const Group& group = {});
// Why no jail can be made here, in words; empty when one can. Tries one, in a folder that holds the
// runner.
std::string defect(const std::string& folder);
// What refuses user namespaces, behind "which"; the settings of a system lie in /proc/sys.
std::string who_refuses_namespaces(const std::string& settings);

// How a command in a jail ended.
struct Outcome {
  int status = 0;  // exit status, or 128 and the signal
  bool timed_out = false;
  bool ran_out_of_memory = false;  // of its control group
};
Outcome run(const Settings& settings, double seconds);

// Ends all processes of the group and waits for the first.
void end(pid_t group);

}  // namespace rooflane::jail
