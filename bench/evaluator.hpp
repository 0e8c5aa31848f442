// Evaluates tunings for a search. A worker process builds and verifies each tuning, then times it
// in the same rounds as the model's choice, so that a search compares ratios and never times. If a
// tuning is refused, computes wrongly, hangs or crashes, this becomes its status. The search itself
// (python/rooflane) decides which tunings to evaluate.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/rounds.hpp"
#include "bench/worker_pool.hpp"
#include "core/statistics.hpp"
#include "measure/reference_file.hpp"

namespace rooflane {

// What stands for a proposed tuning: the complete one, or why there is none.
struct LegalTuning {
  std::optional<Tuning> tuning;
  std::string reason;
};

// One step of successive halving (Jamieson and Talwalkar, 2016): so many rounds; who is then
// certainly slower than `within` times the best ratio known takes no further ones.
struct Halving {
  int rounds = 3;
  double within = 1.1;
};

struct EvaluationRequest {
  std::vector<Tuning> tunings;
  std::vector<Halving> steps;
  double best = 1;     // the least ratio known so far
  bool fresh = false;  // all in new processes, the model's choice too
};

struct Evaluation {
  Tuning tuning;  // as the plan completed it
  Status status = Status::passed;
  std::string reason;
  std::optional<Verification> verification;
  std::size_t workspace_bytes = 0;
  std::vector<double> ns;          // one a round
  std::vector<double> default_ns;  // of the model's choice in the same rounds
  Interval ratio_interval;         // 95 %, of the median of ns / default_ns
  double ratio = 0;                // that median
  // Seconds. Time that several tunings took together is shared equally.
  double build_s = 0, verify_s = 0, time_s = 0;
};

class Evaluator {
 public:
  // `options`: catalogue, worker_command, timeout, worker_memory_bytes, seed; outlives this.
  explicit Evaluator(const BenchOptions& options) : options_(options), pool_(options) {}

  // From now on tunings are of this case; its own tuning is empty. Opens and verifies the model's
  // choice. Throws WorkerError when it cannot be had.
  void open(const Case& c);
  const Case& opened() const { return case_; }
  const Tuning& first_choice() const { return first_.tuning; }
  const PlanFacts& facts() const { return facts_; }

  // With what the tuning leaves open, by the variant's own rule; or the constraint that it breaks.
  LegalTuning legal(const Tuning& given) const;
  // The legal tuning that keeps the given values as far as they agree with one another: they are
  // taken over one by one.
  Tuning nearest(const Tuning& given) const;

  // Tunings, each legal, in the order given.
  std::vector<Evaluation> evaluate(const EvaluationRequest& request);

 private:
  struct Contender;
  Worker& worker(std::size_t slot, const Case& c);
  Tuning completed(const Variant& variant, const Tuning& given) const;
  void open_first(bool again);
  void prepare(Contender& contender);
  void take_steps(std::vector<Contender>& contenders, const EvaluationRequest& request);
  bool take_step(const EvaluationRequest& request, std::size_t step, Measured& first,
                 std::vector<Contender>& contenders);
  void finish(Contender& contender);

  const BenchOptions& options_;
  WorkerPool pool_;
  ReferenceFile reference_;
  std::vector<std::unique_ptr<Worker>> workers_;  // slot 0: the model's choice
  Case case_;
  Evaluation first_;
  PlanFacts facts_;
  Calibration first_calibration_;
  std::int64_t evaluations_ = 0;  // so far: seeds the order of slots
};

}  // namespace rooflane
