// Times a piece of work that all threads start at once, each on its own CPU. Used by ceilings and
// probes; kernels are timed by the sampler (worker.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include <sched.h>

#include "core/parallel.hpp"
#include "core/stopwatch.hpp"

namespace rooflane {

// Makes the compiler compute `value`: it could be read here.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// Keeps the calling thread on its CPU of the machine's placement (physical cores first) while it
// lives, so that two threads never share one. A thread that is bound already stays where it is; on
// a machine with too few CPUs nothing happens.
class Placed {
 public:
  Placed(int thread, int threads);
  ~Placed();
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

 private:
  cpu_set_t before_;
  bool moved_ = false;
};

class Together {
 public:
  explicit Together(int threads) : times_(static_cast<std::size_t>(threads)) {}

  int threads() const { return static_cast<int>(times_.size()); }

  // Nanoseconds from the first thread's start to the last one's end of `work(thread)`, on the
  // default pool. Throws Error(unavailable) when fewer threads run than asked for. Allocates
  // nothing.
  template <class Work>
  double run_ns(Work&& work) {
    int running = 0;
    parallel_region(nullptr, threads(), [&](const Team& team) {
      const Placed placed(team.thread, team.threads);
      if (team.thread == 0) running = team.threads;
      Times& mine = times_[static_cast<std::size_t>(team.thread)];
      team.barrier();
      mine.start = Clock::now();
      work(team.thread);
      mine.end = Clock::now();
    });
    return span_ns(running);
  }

 private:
  using Clock = std::chrono::steady_clock;
  // A cache line each: threads write their times while others still work.
  struct alignas(64) Times {
    Clock::time_point start, end;
  };
  double span_ns(int running) const;

  std::vector<Times> times_;
};

}  // namespace rooflane
