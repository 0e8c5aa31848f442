// Runs one group: opens its cases, verifies them, lets them take turns in rounds, verifies again.
// What goes wrong with one case becomes its status; the others go on.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/groups.hpp"
#include "bench/row_assembly.hpp"
#include "bench/worker_pool.hpp"
#include "measure/reference_file.hpp"

namespace rooflane {

struct GroupCallbacks {
  std::function<void(const Sample&)> on_sample;
  std::function<void(double done)> on_progress;  // of this group, in [0,1]
};

class GroupRunner {
 public:
  // The ceilings may grow between groups; `options` and they outlive the runner.
  GroupRunner(const BenchOptions& options, const Ceilings& ceilings)
      : options_(options), ceilings_(ceilings), workers_(options) {}

  // One entry per case, in order. `seconds`: after that much time for rounds, no more of them than
  // the fewest allowed.
  std::vector<Measured> run(const Group& group, double seconds, const GroupCallbacks& callbacks);

  const std::vector<WorkerContext>& worker_contexts() const { return workers_.contexts(); }

 private:
  struct Member;
  void open(Member& member);
  void verify(Member& member, const Group& group);
  void take_rounds(std::vector<Member>& members, const Group& group, double seconds,
                   const GroupCallbacks& callbacks);
  double probe(const Group& group) const;
  std::optional<double> predicted_seconds(const GroupCase& planned);

  const BenchOptions& options_;
  const Ceilings& ceilings_;
  WorkerPool workers_;
  ReferenceFile reference_;
  std::map<std::string, double> flops_per_ns_;  // of one-thread variants, by kernel and variant
};

}  // namespace rooflane
