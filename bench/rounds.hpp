// The rounds of one group in one launch: a probe, then every case takes its turn, in an order
// shuffled from the seed, until all medians are known well enough or time runs out.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/row_assembly.hpp"
#include "measure/worker.hpp"

namespace rooflane {

// One case while its group runs. What goes wrong with it becomes its status.
struct Member {
  Measured* measured = nullptr;
  Worker* worker = nullptr;
  std::vector<int> cpus;  // that its worker may use
  bool active = true;     // still to be measured
  bool slow = false;      // gets the fewest rounds

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
  std::string title;  // of the group: with launch and round it seeds the order of turns
  std::int64_t launch = 1;
  std::uint64_t seed = 1;
  int launches = 1;
  double min_time = 0;      // seconds of timed work per row, over all launches
  double seconds = 0;       // for the rounds; then no more of them than the fewest allowed
  int exactly = 0;          // so many rounds, whatever is known by then; 0: until enough is known
  double interval_pct = 2;  // half width of the median's interval that is enough, over all launches
  std::function<double()> probe;                 // nanoseconds of the group's probe
  std::function<void(const Sample&)> on_sample;  // of every sample that is kept
  std::function<void(double done)> on_progress;  // in [0,1]
};

// Samples are added to what the members hold already; a round of this launch that a member has (of
// an interrupted run) is not taken again. A sample during which something interfered is taken again
// at most twice in its turn, and as long as no more than half of the row's samples were; what still
// is disturbed then is kept and marked. Sets `stop` of each.
void take_rounds(std::span<Member> members, const Rounds& rounds);

}  // namespace rooflane
