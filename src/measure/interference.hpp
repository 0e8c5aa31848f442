// Disturbances of a sample: CPU time of other guests (steal), threads of the worker that waited for
// a CPU (preempted), a probe with an unusual time. Linux only; values missing in /proc count as no
// disturbance.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooflane {

// Counters that only grow, of some CPUs and one process.
struct InterferenceCounts {
  struct Thread {
    std::int64_t preempted = 0;  // involuntary context switches
    double waiting_ns = 0;       // ready to run, waiting for a CPU
    double used_ns = 0;          // CPU time
  };
  double steal_ns = 0;  // of the CPUs together
  std::map<std::int64_t, Thread> threads;
  double now_ns = 0;  // steady clock
};

// `cpus` empty: all.
InterferenceCounts interference_counts(std::span<const int> cpus, pid_t process);

// What came in between: `steal`, `preempted`, joined by '+'; empty: nothing. Either counts when it
// took more than 2 % of the time, the interval that a run asks for by default. Steal is counted in
// ticks of 10 ms, so that a single tick marks any sample shorter than half a second. Where more
// threads of the process ran than it has CPUs they preempt each other, which is its own affair (and
// cannot be told from others' doing): then only steal counts.
std::string interference_between(const InterferenceCounts& before, const InterferenceCounts& after,
                                 std::size_t cpus);

// True when the last probe lies off the median of all by more than three standard deviations (as
// the median absolute deviation estimates them), and by more than 5 %. Never with fewer than 5.
bool probe_moved(std::span<const double> probe_ns);

// From the text of /proc/stat, in ticks of 1/100 s; from a thread's `status` and `schedstat`.
double steal_ticks(std::string_view stat, std::span<const int> cpus);
InterferenceCounts::Thread thread_counts(std::string_view status, std::string_view schedstat);

}  // namespace rooflane
