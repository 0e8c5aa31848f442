// The rounds of one repetition of a group: a probe, then the cases take their slots, in an order
// shuffled from the seed. Time goes to contenders; cases that are out of the race (race.hpp)
// have only a few rounds.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/row_assembly.hpp"
#include "bench/time_use.hpp"
#include "measure/worker.hpp"

namespace rooflane {

// One case while its group runs. What goes wrong with it becomes its status.
struct Member {
  Measured* measured = nullptr;
  Worker* worker = nullptr;
  std::vector<int> cpus;  // that its worker may use
  bool active = true;     // still to be measured
  bool contender = true;  // else it takes `few` rounds of the repetition, not all

  // Runs a step; what the worker answers instead becomes the status.
  template <class Step>
  void attempt(Step&& step) {
    if (!active) return;
    try {
      step();
    } catch (const WorkerError& error) {
      stop(error.status(), error.what());
    }
  }
  void stop(Status status, const std::string& reason) {
    measured->status = status;
    measured->reason = reason;
    active = false;
  }
};

struct Rounds {
  std::string title;  // of the group: with repetition and round it seeds the order of slots
  std::int64_t repetition = 1;
  std::uint64_t seed = 1;
  double min_time = 0;  // seconds of timed work of each contender in this repetition, at least
  double seconds = 0;   // then no further round
  int exactly = 0;      // so many rounds, whatever is known by then; 0: until enough is known
  int fewest = 3;       // rounds that are taken even when time is up
  int few = 1;          // rounds of members that are no contenders
  double interval_pct =
      2;                   // half width of the median's interval that is enough, of this repetition
  TimeUse* use = nullptr;  // where the time went
  std::function<double()> probe;                 // nanoseconds of the group's probe
  std::function<void(const Sample&)> on_sample;  // of every sample that is kept
  std::function<void(double done)> on_progress;  // in [0,1]
};

// Samples are added to what the members hold already; a round of this repetition that a member has
// (of an interrupted run) is not taken again. A sample during which something interfered is taken
// again at most twice in its slot, and as long as no more than half of the row's samples were; what
// still is disturbed then is kept and marked. Sets `stop` of each contender.
void take_rounds(std::span<Member> members, const Rounds& rounds);

}  // namespace rooflane
