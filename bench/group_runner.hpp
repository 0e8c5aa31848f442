// Runs one group: opens its cases, verifies them, lets them take turns (rounds.hpp), verifies
// again. What goes wrong with one case becomes its status; the others go on.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/groups.hpp"
#include "bench/rounds.hpp"
#include "bench/row_assembly.hpp"
#include "bench/worker_pool.hpp"
#include "measure/reference_file.hpp"

namespace rooflane {

struct GroupCallbacks {
  std::function<void(const Sample&)> on_sample;
  std::function<void(std::int64_t row, std::int64_t runs_per_sample)> on_calibration;
  std::function<void(std::int64_t row, Status, const std::string& reason)> on_failure;
  std::function<void(double done)> on_progress;  // of this group and launch, in [0,1]
};

class GroupRunner {
 public:
  // The ceilings may grow between groups; `options` and they outlive the runner.
  GroupRunner(const BenchOptions& options, const Ceilings& ceilings)
      : options_(options), ceilings_(ceilings), workers_(options) {}

  // One launch of a group. `measured` has one entry per case, in order, with what earlier launches
  // gave (planned is set); a case that is no longer PASSED is left alone. `seconds`: after that
  // much time for rounds, no more of them than the fewest allowed.
  void run(const Group& group, std::int64_t launch, double seconds, std::vector<Measured>& measured,
           const GroupCallbacks& callbacks);
  // Ends all worker processes: the next launch finds fresh ones.
  void end_workers() { workers_.end_all(); }

  const std::vector<WorkerContext>& worker_contexts() const { return workers_.contexts(); }

 private:
  void open(Member& member);
  void verify(Member& member, const Group& group, bool again);
  void calibrate(Member& member, const GroupCallbacks& callbacks);
  void profile(Member& member) const;
  double probe(const Group& group) const;
  double clock_cost_ns();
  std::optional<double> predicted_seconds(const GroupCase& planned);

  const BenchOptions& options_;
  const Ceilings& ceilings_;
  WorkerPool workers_;
  ReferenceFile reference_;
  double clock_cost_ns_ = 0;  // 0: not yet measured
  // Of one-thread variants and rungs, by what identifies a case beside its shape.
  std::map<std::string, double> flops_per_ns_;
};

}  // namespace rooflane
