// A pool of threads of our own, for programs that must not bring an OpenMP runtime: Python's
// package, whose process may hold others', and builds without OpenMP (the thread sanitizer's).
#pragma once

#include "parallel.hpp"

namespace rooflane {

// The process's pool. Its threads are started when a region first needs them and stay; between
// regions they spin for a tenth of a millisecond, then sleep (OMP_WAIT_POLICY=passive: at once).
// Regions that run at the same time, nested ones too, have threads of their own each. A forked
// child starts with none. Fewer threads than asked for run where the system gives no more.
Pool& thread_pool();

// Binds the threads that the pool starts from now on to a CPU each of those that this process may
// run on, and the calling thread, which is thread 0 of its regions, to the first. For a process
// that measures: no other thread should run regions, and what others start inherits that one CPU.
void bind_thread_pool();

// The same where OMP_PROC_BIND asks for it and kernels run on this pool; OpenMP does it by itself.
void bind_default_pool();  // in parallel.cpp, which knows

// CPUs that this process may run on, as its affinity was when this was first called.
int usable_cpus();

// One step of a spinning wait.
void relax();

}  // namespace rooflane
