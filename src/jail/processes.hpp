// A process and all that descend from it, as /proc shows them: what they use, and stopping them.
// A jail's processes stay below its first one, whatever sessions and parents they choose. Linux
// only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace rooflane::jail {

// The process first, then its descendants.
std::vector<pid_t> processes_below(pid_t process);
// The last first child of first children: below bubblewrap's own processes the one that it runs.
pid_t innermost(pid_t process);

std::size_t resident_bytes_below(pid_t process);
// CPU time of each, in ns.
std::map<pid_t, double> cpu_times_below(pid_t process);
// What was used since, also by processes that did not exist then.
double cpu_time_since(const std::map<pid_t, double>& before, pid_t process);
// The threads that run, or wait for a CPU to run on, by their folders in /proc.
std::set<std::string> runnable_below(pid_t process);

// The process leads a group. Also those that begin while others are being stopped.
void stop_below(pid_t process);
void continue_below(pid_t process);

// Whether one of the first touches memory of a file of this name (memfd_create) within so many
// microseconds.
bool touches_memory(pid_t process, const std::string& name, unsigned within_us);

}  // namespace rooflane::jail
