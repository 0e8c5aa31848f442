// Runs one repetition of a group: opens its cases with fresh memory and plans, verifies them, lets
// them take slots in rounds (rounds.hpp), verifies again. An error of one case becomes its status;
// the others continue.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/groups.hpp"
#include "bench/rounds.hpp"
#include "bench/row_assembly.hpp"
#include "bench/time_use.hpp"
#include "bench/worker_pool.hpp"
#include "measure/reference_file.hpp"

namespace rooflane {

struct GroupCallbacks {
  std::function<void(const Sample&)> on_sample;
  std::function<void(std::int64_t row, std::int64_t runs_per_sample)> on_calibration;
  std::function<void(std::int64_t row, Status, const std::string& reason)> on_failure;
  std::function<void(double done)> on_progress;  // of this repetition, in [0,1]
};

class GroupRunner {
 public:
  // The ceilings may grow between groups; `options` and they outlive the runner.
  GroupRunner(const BenchOptions& options, const Ceilings& ceilings)
      : options_(options), ceilings_(ceilings), workers_(options) {}

  // One repetition. `measured` has one entry per case, in order, with what earlier repetitions gave
  // (planned is set); a case without a speed, or out of the race with enough samples, is left
  // alone. `seconds`: after that much time for rounds, no more of them than the fewest allowed.
  void run(const Group& group, std::int64_t repetition, double seconds,
           std::vector<Measured>& measured, const GroupCallbacks& callbacks);
  // Ends the worker processes: the next repetition finds fresh ones. With `keep_foreign`
  // third-party programs stay: they take seconds to start, and go on with fresh memory and plans.
  void end_workers(bool keep_foreign) { workers_.end_all(keep_foreign); }

  TimeUse& time_use() { return use_; }
  const std::vector<WorkerContext>& worker_contexts() const { return workers_.contexts(); }

 private:
  void open(Member& member);
  void verify_other_inputs(Member& member);
  std::string defect_of_other_inputs(Worker& worker, Case c);
  void verify(Member& member, const Group& group);
  void verify_again(Member& member, const Group& group, bool follow);
  static void accept(const Verification& verification, const std::string& when, Measured& measured);
  void compare(Member& member, const Group& group, const std::string& when);
  void calibrate(Member& member, const GroupCallbacks& callbacks);
  void profile(Member& member) const;
  double probe(const Group& group) const;
  double clock_cost_ns();
  std::optional<double> predicted_seconds(const GroupCase& planned);

  const BenchOptions& options_;
  const Ceilings& ceilings_;
  WorkerPool workers_;
  ReferenceFile reference_, other_references_;
  TimeUse use_;
  // What passed, of each problem and variant: other thread counts often give the same bits.
  std::map<std::string, Verification> passed_;
  // What is wrong with a small case away from ordinary inputs; empty: nothing.
  std::map<std::string, std::string> other_inputs_;
  double clock_cost_ns_ = 0;  // 0: not yet measured
  // Speeds of one-thread variants and rungs, by the parts of a case's identity other than its
  // shape.
  std::map<std::string, double> flops_per_ns_;
};

}  // namespace rooflane
