// A pool of threads of our own, for programs that must not bring an OpenMP runtime: Python's
// package, since its process may contain others', and builds without OpenMP (the thread
// sanitizer's).
#pragma once

#include <functional>
#include <memory>

#include "parallel.hpp"

namespace rooflane {

// The process's pool. Its threads are started when a region first needs them and stay; between
// regions they spin for a tenth of a millisecond, then sleep (OMP_WAIT_POLICY=passive: at once).
// Regions that run at the same time, nested ones too, have threads of their own each. A forked
// child starts with none. Fewer threads than asked for run where the system gives no more.
Pool& thread_pool();

// What a thread of such a number does while it waits for a region, or for the others at its end. It
// is called again and again, takes less than a microsecond and returns false when there is nothing
// left to do.
using IdleWork = std::function<bool(int thread)>;
// A pool with threads of its own that work while they wait and sleep only when no region has called
// for some milliseconds: for programs that run one region right behind another. A region
// that runs while another does gets its threads from the process's pool, and one of more threads
// than CPUs from the default pool.
std::unique_ptr<Pool> pool_with_idle_work(IdleWork work);

// Binds the threads that the pool starts from now on to a CPU each of those that this process may
// run on, and the calling thread, which is thread 0 of its regions, to the first. For a process
// that measures: no other thread should run regions, and what others start inherits that one CPU.
void bind_thread_pool();

// The same where OMP_PROC_BIND asks for it and kernels run on this pool; OpenMP does it by itself.
void bind_default_pool();  // in parallel.cpp, which knows

// CPUs that this process may run on, as its affinity was when this was first called.
int usable_cpus();

}  // namespace rooflane
