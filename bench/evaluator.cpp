// Building, verifying and timing tunings side by side. See evaluator.hpp.
#include "bench/evaluator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/groups.hpp"
#include "core/error.hpp"
#include "measure/sampler.hpp"

namespace rooflane {
namespace {

// A tuning that takes so many times as long as the best is known well enough by the runs that its
// calibration made.
constexpr double hopeless = 3;
// Samples that something disturbed are taken again until a step has lasted this long.
constexpr double most_seconds = 60;

double seconds_since(double begin_ns) { return (steady_clock_ns() - begin_ns) * 1e-9; }

std::vector<double> ratios_of(const Evaluation& evaluation) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < evaluation.ns.size(); ++i) {
    ratios.push_back(evaluation.ns[i] / evaluation.default_ns[i]);
  }
  return ratios;
}

// 95 %, of the median of ratios that one process gave.
Interval interval_of(const std::vector<double>& ratios) {
  std::vector<double> logs;
  for (const double ratio : ratios) logs.push_back(std::log(ratio));
  if (logs.size() == 1) return {ratios[0], ratios[0]};
  const Interval interval = estimate_over_repetitions({&logs, 1}).interval();
  return {std::exp(interval.low), std::exp(interval.high)};
}

}  // namespace

// A tuning while it is evaluated, as the rounds know it.
struct Evaluator::Contender {
  Evaluation evaluation;
  GroupCase planned;
  Measured measured;
  Worker* worker = nullptr;
  bool active = true;

  void fail(Status status, const std::string& reason) {
    evaluation.status = status;
    evaluation.reason = reason;
    active = false;
  }
};

Worker& Evaluator::worker(std::size_t slot, const Case& c) {
  if (workers_.size() <= slot) workers_.resize(slot + 1);
  if (workers_[slot] == nullptr) workers_[slot] = pool_.start(c);
  return *workers_[slot];
}

void Evaluator::open(const Case& c) {
  workers_.clear();
  case_ = c;
  open_first(/*again=*/false);
}

void Evaluator::open_first(bool again) {
  Contender first;
  first.planned.measured = case_;
  // The very tuning that was found first, whatever a model would choose now.
  if (again) first.planned.measured.tuning = first_.tuning;
  first.worker = &worker(0, case_);
  prepare(first);
  if (!first.active) throw WorkerError(first.evaluation.status, first.evaluation.reason);
  first_ = first.evaluation;
  facts_ = first.measured.opened->facts;
  first_calibration_ = first.measured.calibration;
}

LegalTuning Evaluator::legal(const Tuning& given) const {
  const Variant& variant = variant_of(case_, *options_.catalogue);
  const Environment env = case_.environment();
  try {
    parse_tuning(variant, given.text());  // keys and ranges
    const Tuning tuning = completed(variant, given);
    if (variant.tuning_defect != nullptr) {
      if (const auto defect = variant.tuning_defect(case_.problem, tuning, env)) {
        return {std::nullopt, *defect};
      }
    }
    return {tuning, ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

// By the variant's own rule, without values that what it selects does not read.
Tuning Evaluator::completed(const Variant& variant, const Tuning& given) const {
  const Environment env = case_.environment();
  if (variant.complete != nullptr) return variant.complete(case_.problem, given, env);
  Tuning selecting;
  for (const Tunable& tunable : variant.tunables) {
    const auto value = tunable.selects ? given.find(tunable.name) : std::nullopt;
    if (value) selecting.set(tunable.name, *value);
  }
  Tuning tuning = complete_tuning(variant, case_.problem, env, selecting);
  // Only a plan shows this: a worker of another program lists no search space.
  if (tuning.values().empty()) tuning = first_.tuning;
  for (const auto& [name, value] : given.values()) {
    if (tuning.find(name)) tuning.set(name, value);
  }
  return tuning;
}

Tuning Evaluator::nearest(const Tuning& given) const {
  if (auto whole = legal(given); whole.tuning) return *whole.tuning;
  // One of the search space that agrees with much of it, then the other values.
  const Variant& variant = variant_of(case_, *options_.catalogue);
  Tuning best = first_.tuning;
  int most = -1;
  for (const Tuning& tuning : variant.tunings(case_.problem, case_.environment())) {
    int agrees = 0;
    for (const Tunable& tunable : variant.tunables) {
      const auto value = given.find(tunable.name);
      if (value && value == tuning.find(tunable.name)) agrees += tunable.selects ? 100 : 1;
    }
    const auto complete = agrees > most ? legal(tuning).tuning : std::nullopt;
    if (!complete) continue;
    best = *complete;
    most = agrees;
  }
  for (const auto& [name, value] : given.values()) {
    Tuning changed = best;
    changed.set(name, value);
    if (auto kept = legal(changed); kept.tuning) best = *kept.tuning;
  }
  return best;
}

// Opens, verifies, and finds out how many runs make a sample.
void Evaluator::prepare(Contender& contender) {
  Evaluation& evaluation = contender.evaluation;
  double begin = steady_clock_ns();
  try {
    const Opened opened = contender.worker->open(contender.planned.measured);
    contender.measured.opened = opened;
    evaluation.tuning = opened.facts.tuning;
    evaluation.workspace_bytes = opened.facts.workspace_bytes;
    evaluation.build_s = seconds_since(begin);
    begin = steady_clock_ns();
    const Math& math = case_.math_record();
    evaluation.verification =
        contender.worker->verify(reference_.path_for(case_.problem, case_.seed, math));
    evaluation.verify_s = seconds_since(begin);
    if (!evaluation.verification->usable()) {
      contender.fail(Status::failed, evaluation.verification->reason);
      return;
    }
    begin = steady_clock_ns();
    contender.measured.calibration = contender.worker->calibrate();
    contender.worker->settle();
    evaluation.time_s = seconds_since(begin);
  } catch (const WorkerError& error) {
    if (evaluation.tuning.values().empty()) {
      evaluation.tuning = contender.planned.measured.tuning;
    }
    contender.fail(error.status(), error.what());
  }
}

std::vector<Evaluation> Evaluator::evaluate(const EvaluationRequest& request) {
  if (request.fresh) {
    workers_.clear();
    open_first(/*again=*/true);
  }
  ++evaluations_;
  std::vector<Contender> contenders(request.tunings.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Contender& contender = contenders[i];
    contender.planned.measured = case_;
    contender.planned.measured.tuning = request.tunings[i];
    contender.planned.row = static_cast<std::int64_t>(i) + 1;
    contender.worker = &worker(i + 1, contender.planned.measured);
    prepare(contender);
    const double run_ns = contender.measured.calibration.run_ns;
    if (contender.active && run_ns > hopeless * request.best * first_calibration_.run_ns) {
      contender.evaluation.ns = {run_ns};
      contender.evaluation.default_ns = {first_calibration_.run_ns};
      contender.active = false;
    }
  }
  take_steps(contenders, request);
  std::vector<Evaluation> evaluations;
  for (Contender& contender : contenders) {
    finish(contender);
    evaluations.push_back(std::move(contender.evaluation));
  }
  return evaluations;
}

// Verifies again, as a run may have broken what later ones need, and closes.
void Evaluator::finish(Contender& contender) {
  Evaluation& evaluation = contender.evaluation;
  const std::vector<double> ratios = ratios_of(evaluation);
  if (!ratios.empty()) {
    evaluation.ratio = median(ratios);
    evaluation.ratio_interval = interval_of(ratios);
  }
  try {
    if (has_speed(evaluation.status)) {
      const Verification again = contender.worker->verify(
          reference_.path_for(case_.problem, case_.seed, case_.math_record()));
      if (!again.usable()) {
        contender.fail(Status::failed, "after the measurement: " + again.reason);
      }
    }
    contender.worker->close();  // its memory is others' from now on
  } catch (const WorkerError& error) {
    // The next open starts another process.
    if (has_speed(evaluation.status)) contender.fail(error.status(), error.what());
  }
}

void Evaluator::take_steps(std::vector<Contender>& contenders, const EvaluationRequest& request) {
  GroupCase first_planned;
  first_planned.measured = case_;
  Measured first;
  first.planned = &first_planned;
  first.calibration = first_calibration_;
  for (std::size_t i = 0; i < request.steps.size(); ++i) {
    if (!take_step(request, i, first, contenders)) return;
  }
}

// One step of all that still take part; false when nobody does.
bool Evaluator::take_step(const EvaluationRequest& request, std::size_t step, Measured& first,
                          std::vector<Contender>& contenders) {
  const double begin = steady_clock_ns();
  const auto member_of = [&](Measured& measured, Worker* worker) {
    Member member;
    member.measured = &measured;
    member.worker = worker;
    member.cpus = pool_.cpus_for(case_);
    return member;
  };
  std::vector<Member> members = {member_of(first, workers_[0].get())};
  std::vector<Contender*> playing;
  for (Contender& contender : contenders) {
    if (!contender.active) continue;
    contender.measured.planned = &contender.planned;
    members.push_back(member_of(contender.measured, contender.worker));
    playing.push_back(&contender);
  }
  if (playing.empty()) return false;
  Rounds rounds;
  rounds.title = fmt::format("{} {}", case_.text(), evaluations_);
  rounds.repetition = static_cast<std::int64_t>(step) + 1;
  TimeUse use;
  rounds.use = &use;
  rounds.seed = options_.seed;
  rounds.exactly = request.steps[step].rounds;
  rounds.seconds = most_seconds;
  rounds.probe = [] { return 1.0; };  // ratios need none
  rounds.on_sample = [](const Sample&) {};
  rounds.on_progress = [](double) {};
  take_rounds(members, rounds);
  if (!members[0].active) {
    workers_.clear();  // the next call starts new workers
    throw WorkerError(first.status, "the model's choice: " + first.reason);
  }
  for (std::size_t i = 0; i < playing.size(); ++i) {
    Contender& contender = *playing[i];
    Evaluation& evaluation = contender.evaluation;
    evaluation.time_s += seconds_since(begin) / static_cast<double>(playing.size());
    if (!members[i + 1].active) {
      contender.fail(contender.measured.status, contender.measured.reason);
      continue;
    }
    evaluation.ns = contender.measured.ns;
    evaluation.default_ns.assign(first.ns.begin(), first.ns.begin() + std::ssize(evaluation.ns));
    contender.active =
        interval_of(ratios_of(evaluation)).low <= request.best * request.steps[step].within;
  }
  return true;
}

}  // namespace rooflane
