// What a process uses: CPU time and resident memory, as the kernel counts them. Linux only.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace rooflane {

// CPU time of all threads of a process so far, in ns; 0 when the process is gone.
double cpu_time_ns(pid_t process);

// Resident memory now and at its peak, in bytes; 0 when the process is gone.
std::int64_t resident_bytes(pid_t process);
std::int64_t peak_resident_bytes(pid_t process);

// Whether a signal (SIGSTOP and its like) keeps a process from running.
bool is_stopped(pid_t process);

// Waits until a process uses no more CPU time, at most a second: runtimes spin for a while after a
// parallel region. False when it was busy to the end.
bool settle(pid_t process);

// Starts counting this process's peak again.
void reset_peak_resident();

}  // namespace rooflane
