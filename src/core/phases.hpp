// What a thread spends the time of a run on: computing, unless somebody says otherwise. Kernels
// name phases by a PhaseTimer around coarse pieces of work (packing a block, adding up parts of k),
// parallel.cpp names the starting of threads and the waiting for them. Where nobody records
// (phase_recorder.hpp) a timer costs a load and a branch; where somebody does, two readings of the
// clock, 20 to 50 ns: nothing that takes less than some microseconds is worth one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace rooflane {

enum class RunPhase : std::uint8_t {
  compute,  // the kernel's arithmetic with its loads and stores: what no other phase holds
  tail,     // the same on tiles that the problem's edge leaves partly filled
  pack,     // copying operands into the order in which they are read
  reduce,   // adding up what threads or parts of k computed
  store,    // writing results that were computed elsewhere to the output
  start,    // from a parallel region's begin until the thread is there
  wait,     // for other threads: at barriers, and at a region's end
  run,      // in traces, a run from begin to end; what no phase inside holds is computing
};
inline constexpr int phase_count = 8;

std::string_view name_of(RunPhase phase);  // "compute", "tail"…
std::optional<RunPhase> parse_phase(std::string_view name);

// Ticks of a clock that is read in about 10 ns: the time stamp counter, which on CPUs of the last
// fifteen years runs at one rate on all cores; where there is none, nanoseconds.
inline std::int64_t phase_clock() {
#if defined(__x86_64__) || defined(__i386__)
  return static_cast<std::int64_t>(__builtin_ia32_rdtsc());
#else
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
#endif
}

class PhaseRecorder;

// The phases of one thread. A phase inside another one takes its time from it, so that all together
// never exceed what has passed. Allocates nothing while it records.
class alignas(64) PhaseLog {
 public:
  struct Total {
    std::int64_t ticks = 0, times = 0;
  };
  struct Event {
    std::int64_t begin, end;
    RunPhase phase;
  };
  // A phase that has begun.
  struct Opened {
    std::int64_t begin, inside_before;
  };

  // Keeps the first `most_events`; totals hold all.
  PhaseLog(PhaseRecorder& recorder, std::size_t most_events)
      : recorder_(recorder), most_events_(most_events) {
    events_.reserve(most_events);
  }
  void clear();

  Opened open(std::int64_t now) {
    const Opened opened = {now, inside_};
    inside_ = 0;
    return opened;
  }
  void close(RunPhase phase, const Opened& opened, std::int64_t now);
  void add(RunPhase phase, std::int64_t begin, std::int64_t end) { close(phase, open(begin), end); }

  PhaseRecorder& recorder() const { return recorder_; }
  const Total& total(RunPhase phase) const { return totals_[static_cast<int>(phase)]; }
  const std::vector<Event>& events() const { return events_; }
  std::int64_t dropped() const { return dropped_; }  // events beyond the most

 private:
  PhaseRecorder& recorder_;
  std::size_t most_events_;
  std::int64_t inside_ = 0;  // ticks of the phases that ended inside the open one
  Total totals_[phase_count];
  std::vector<Event> events_;
  std::int64_t dropped_ = 0;
};

// The calling thread's log; null: nobody records.
inline constinit thread_local PhaseLog* phase_log = nullptr;

// Counts the calling thread's time to a phase until the timer's end.
class PhaseTimer {
 public:
  explicit PhaseTimer(RunPhase phase) : PhaseTimer(phase_log, phase) {}
  // Null: not timed.
  PhaseTimer(PhaseLog* log, RunPhase phase) : log_(log), phase_(phase) {
    if (log_ != nullptr) opened_ = log_->open(phase_clock());
  }
  ~PhaseTimer() {
    if (log_ != nullptr) log_->close(phase_, opened_, phase_clock());
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  PhaseLog* const log_;
  const RunPhase phase_;
  PhaseLog::Opened opened_ = {};
};

}  // namespace rooflane
