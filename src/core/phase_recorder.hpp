// Records the phases of all threads of a run; what they come to. Who times a phase: phases.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "phases.hpp"

namespace rooflane {

// What a thread spent on a phase, without what phases inside it took.
struct ThreadPhase {
  int thread = 0;
  RunPhase phase = RunPhase::compute;
  double ns = 0;
  double times = 0;  // how often
};

// A phase from its begin to its end, with what lies inside; counted from the recording's begin.
struct PhaseEvent {
  int thread = 0;
  RunPhase phase = RunPhase::compute;
  double begin_ns = 0, end_ns = 0;
};

struct PhaseTimes {
  double wall_ns = 0;  // the whole recording
  std::vector<ThreadPhase> phases;
  std::vector<PhaseEvent> events;  // thread by thread, by their begin, the longest first
  std::int64_t dropped = 0;        // events that found no room
};

// Runs of a plan with and without a recorder, alternating (measure/phase_profile.hpp).
struct PhaseProfile {
  std::int64_t runs = 0;            // recorded
  double run_ns = 0;                // of one of them
  double plain_ns = 0;              // of one that was not recorded
  std::vector<ThreadPhase> phases;  // of one run
  std::vector<PhaseEvent> events = {};
  std::int64_t dropped = 0;
  // Counts of one run, all threads together: cycles, instructions… Empty where there are none.
  std::vector<std::pair<std::string, double>> counters = {};
};

class PhaseRecorder {
 public:
  // For the calling thread, as thread 0, and the threads of its parallel regions below `threads`.
  PhaseRecorder(int threads, std::size_t events_of_thread);

  // Forgets what was recorded, and listens to the calling thread and to its regions until end(),
  // which the same thread calls. Not while that thread is listened to already.
  void begin();
  void end();
  PhaseTimes times() const;  // after end()

 private:
  friend class PhaseRegion;
  // A thread's part in the region that runs, or in the last one. On a cache line of its own, as the
  // logs are: short regions would wait for lines that threads take from each other.
  struct alignas(64) Visit {
    PhaseLog* before = nullptr;  // of that thread, outside
    PhaseLog::Opened computing = {};
    std::int64_t region = 0;  // its number; 0: there was none, or its wait is in the log
    std::int64_t left = 0;
  };
  double ns(std::int64_t ticks) const { return static_cast<double>(ticks) * ns_per_tick_; }
  // A thread that left the last region waited until its end.
  void add_wait(std::size_t thread, std::int64_t last_region, std::int64_t last_end);

  std::deque<PhaseLog> logs_;  // they stay where they are
  std::vector<Visit> visits_;  // as many
  // Written by the calling thread, while no other one works.
  bool in_region_ = false;
  std::int64_t last_region_ = 0;  // its number, from 1
  std::int64_t last_end_ = 0;
  PhaseLog::Opened computing_ = {};  // the calling thread, from the recording's begin to its end
  std::int64_t begin_ticks_ = 0, end_ticks_ = 0;
  std::int64_t begin_ns_ = 0;
  double ns_per_tick_ = 1;
};

// A parallel region of the thread that is recorded: each thread's phases of it.
class PhaseRegion {
 public:
  // The recorder that a region of the calling thread belongs to; null: none. Regions inside regions
  // are part of the outer one's phases.
  static PhaseRecorder* recorder();

  PhaseRegion(PhaseRecorder& recorder, int threads);
  // On each thread, around what it does.
  void enter(int thread);
  void leave(int thread);
  // On the first thread, when all have left.
  void end();

 private:
  PhaseRecorder& recorder_;
  // The region before; here, so that threads find all that they read in one place.
  const std::int64_t last_region_, last_end_;
  const std::int64_t begin_;
};

}  // namespace rooflane
