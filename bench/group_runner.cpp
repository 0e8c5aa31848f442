// One repetition of a group, around its rounds. See group_runner.hpp.
#include "bench/group_runner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/race.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/seeds.hpp"
#include "measure/distributions.hpp"
#include "measure/process_usage.hpp"
#include "measure/sampler.hpp"
#include "measure/worker_protocol.hpp"

namespace rooflane {

namespace {

// Predicting costs a small run; problems that even 0.05 GFLOP/s finishes in time need none.
constexpr double assumed_flops_per_ns = 0.05;
// The rounds that a contender needs, over the repetitions that every group has.
constexpr int fewest_rounds = 7;
// About 10 ms of plain loops: long enough to time, too short to notice.
constexpr double small_problem_flops = 1e7;
// Away from ordinary inputs: a millisecond for the reference, wide and long enough to meet vectors,
// their ends and several threads.
constexpr double other_inputs_flops = 0x1p19;

}  // namespace

void GroupRunner::run(const Group& group, std::int64_t repetition, double seconds,
                      std::vector<Measured>& measured, const GroupCallbacks& callbacks) {
  std::vector<Member> members(group.cases.size());
  Race race = race_of(group, measured, options_);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Case& c = group.cases[i].measured;
    Member& member = members[i];
    member.measured = &measured[i];
    member.active = has_speed(measured[i].status) && race.wanted[i];
    member.cpus = workers_.cpus_for(c);
    measured[i].affinity = workers_.affinity_of(c);
    use_.timed("open", [&] { open(member); });
  }
  for (Member& member : members) use_.timed("verify", [&] { verify(member, group); });
  for (Member& member : members) {
    use_.timed("calibrate", [&] { member.attempt([&] { calibrate(member, callbacks); }); });
  }
  if (repetition == 1) race = race_of(group, measured, options_);  // by calibrations now
  for (std::size_t i = 0; i < members.size(); ++i) members[i].contender = race.contender[i];
  Rounds rounds;
  rounds.title = group.title();
  rounds.repetition = repetition;
  rounds.seed = options_.seed;
  const int usual = options_.least_repetitions();
  rounds.min_time = options_.min_time / usual;
  rounds.seconds = seconds;
  // The width falls with the root of the number of samples.
  rounds.interval_pct = options_.interval_pct * std::sqrt(static_cast<double>(usual));
  rounds.fewest = (fewest_rounds + usual - 1) / usual;
  rounds.few = (static_cast<int>(fewest_samples) + usual - 1) / usual;
  rounds.use = &use_;
  rounds.probe = [&] { return probe(group); };
  rounds.on_sample = callbacks.on_sample;
  rounds.on_progress = callbacks.on_progress;
  const double begin_ns = steady_clock_ns();
  take_rounds(members, rounds);
  for (Measured& m : measured) m.rounds_seconds += (steady_clock_ns() - begin_ns) * 1e-9;
  if (options_.phases && repetition == usual) {
    for (Member& member : members) profile(member);
  }
  for (Member& member : members) {
    use_.timed("verify again", [&] { verify_again(member, group, repetition == 1); });
    member.attempt([&] {
      member.measured->peak_rss_bytes =
          std::max(member.measured->peak_rss_bytes, member.worker->peak_rss_bytes());
    });
    if (member.worker == nullptr) continue;
    if (!member.active) {
      const Measured& failed = *member.measured;
      callbacks.on_failure(failed.planned->row, failed.status, failed.reason);
    }
    // Also of a case that failed: its memory is others' by now.
    try {
      use_.timed("close", [&] { member.worker->close(); });
    } catch (const WorkerError&) {
      // It died; the next open starts another.
    }
  }
}

void GroupRunner::calibrate(Member& member, const GroupCallbacks& callbacks) {
  Measured& measured = *member.measured;
  if (measured.calibration.run_ns > 0) return;  // fixed by the first repetition
  const Calibration calibration = member.worker->calibrate();
  member.worker->settle();
  measured.calibration.run_ns = calibration.run_ns;
  // A cold sample is one run: the clock's own cost must be lost in it.
  constexpr double most_share = 0.03;
  if (options_.cache == CacheMode::cold && calibration.run_ns * most_share < clock_cost_ns()) {
    member.stop(Status::skipped,
                fmt::format("a cold sample is one run, here of {:.0f} ns; reading the clock costs "
                            "{:.0f} ns, more than {:g} % of it",
                            calibration.run_ns, clock_cost_ns(), 100 * most_share));
    return;
  }
  if (!measured.ns.empty()) return;  // of an interrupted run
  measured.calibration.runs_per_sample = calibration.runs_per_sample;
  callbacks.on_calibration(measured.planned->row, calibration.runs_per_sample);
}

double GroupRunner::clock_cost_ns() {
  if (clock_cost_ns_ == 0) clock_cost_ns_ = rooflane::clock_cost_ns(steady_clock_ns);
  return clock_cost_ns_;
}

void GroupRunner::open(Member& member) {
  if (!member.active) return;
  const GroupCase& planned = *member.measured->planned;
  member.worker = &workers_.worker_for(planned.measured);
  member.attempt([&] {
    const std::string reason = reason_not_drawn(*member.worker, planned.measured);
    if (!reason.empty()) {
      member.stop(Status::skipped,
                  fmt::format("no {} inputs: {}", planned.measured.distribution->name, reason));
      return;
    }
    if (const auto predicted = predicted_seconds(planned);
        predicted && *predicted > options_.scalar_run_seconds) {
      member.stop(Status::skipped,
                  fmt::format("one run would take about {:.1f} s, allowed are {:g} s", *predicted,
                              options_.scalar_run_seconds));
      return;
    }
    use_.timed("of that: other inputs", [&] { verify_other_inputs(member); });
    member.measured->opened = member.worker->open(planned.measured);
    member.worker->settle();
  });
}

// Seconds that one run of a one-thread variant, or of any rung of a ladder, will take, from its
// speed on a small problem.
std::optional<double> GroupRunner::predicted_seconds(const GroupCase& planned) {
  const Case& c = planned.measured;
  const Variant& variant = *planned.entry->variant;
  const bool may_be_slow =
      threads_of(variant, c.tuning) == Threads::one || rung_of(variant, c.tuning) != nullptr;
  if (!may_be_slow) return std::nullopt;
  const double flops = c.problem.kernel().cost(c.problem).flops;
  if (flops <= options_.scalar_run_seconds * 1e9 * assumed_flops_per_ns) return std::nullopt;
  const std::string key = fmt::format("{} {} {} {} {}", c.problem.kernel().name, c.variant, c.isa,
                                      c.tuning.text(), c.threads);
  auto speed = flops_per_ns_.find(key);
  if (speed == flops_per_ns_.end()) {
    Case small = c;
    small.problem = shrunk(c.problem, small_problem_flops);
    if (c.stored) small.tuning = {};  // it may be illegal there
    small.stored = false;
    small.cache = CacheMode::warm;
    Worker& worker = workers_.worker_for(c);
    worker.open(small);
    const double run_ns = worker.calibrate().run_ns;
    worker.close();
    const double small_flops = small.problem.kernel().cost(small.problem).flops;
    speed = flops_per_ns_.emplace(key, small_flops / std::max(run_ns, 1.0)).first;
  }
  return flops / speed->second * 1e-9;
}

// Rows are timed with uniform inputs unless others are asked for. What holds for uniform ones alone
// is INACCURATE; found on a small problem, by the variant's own choice of a tuning, once for all
// problems that shrink to it.
void GroupRunner::verify_other_inputs(Member& member) {
  Measured& measured = *member.measured;
  const bool is_rung =
      rung_of(*measured.planned->entry->variant, measured.planned->measured.tuning) != nullptr;
  if (measured.status == Status::inaccurate || is_rung || options_.distribution != &uniform) return;
  Case small = measured.planned->measured;
  small.problem = shrunk(small.problem, other_inputs_flops);
  small.tuning = {};
  small.stored = false;
  small.cache = CacheMode::warm;
  small.timer = Timer::steady;
  const auto [known, is_new] = other_inputs_.try_emplace(small.text());
  if (is_new) known->second = defect_of_other_inputs(*member.worker, small);
  if (known->second.empty()) return;
  measured.status = Status::inaccurate;
  measured.reason = fmt::format("{} ({})", known->second, small.problem.text());
}

std::string GroupRunner::defect_of_other_inputs(Worker& worker, Case c) {
  for (const Distribution* const distribution : all_distributions()) {
    if (distribution == &uniform) continue;
    c.distribution = distribution;
    try {
      const InDistribution found = verify_in_distribution(worker, c, other_references_);
      if (found.left_out.empty() && !found.verification.passed()) return found.verification.reason;
    } catch (const WorkerError& error) {
      if (error.status() == Status::unsupported) return {};  // the small problem
      throw;
    }
  }
  return {};
}

namespace {

std::string key_of(const Case& c) {
  return fmt::format("{} {} {} {}", c.problem.text(), c.math, c.variant, c.tuning.text());
}

}  // namespace

// A failed row carries no speed. Bits that passed before need no second comparison; from the second
// repetition on one look after the rounds is enough.
void GroupRunner::verify(Member& member, const Group& group) {
  member.attempt([&] {
    Measured& measured = *member.measured;
    if (measured.verification) return;
    const auto known = passed_.find(key_of(measured.planned->measured));
    if (known != passed_.end() &&
        member.worker->reproduces(known->second.output_hash, /*follow=*/false)) {
      accept(known->second, "", measured);
    } else {
      compare(member, group, "");
    }
    member.worker->settle();
  });
}

// `follow`: also whether the outputs follow the inputs, once a case.
void GroupRunner::verify_again(Member& member, const Group& group, bool follow) {
  member.attempt([&] {
    const auto& known = member.measured->verification;
    if (!known || !member.worker->reproduces(known->output_hash, follow)) {
      compare(member, group, "after the measurement: ");
    }
    member.worker->settle();
  });
}

void GroupRunner::accept(const Verification& verification, const std::string& when,
                         Measured& measured) {
  measured.verification = verification;
  if (verification.status == Status::inaccurate && measured.status != Status::inaccurate) {
    measured.status = Status::inaccurate;
    measured.reason = when + verification.reason;
  }
}

void GroupRunner::compare(Member& member, const Group& group, const std::string& when) {
  Measured& measured = *member.measured;
  const Math& math = measured.planned->measured.math_record();
  const std::string reference = use_.timed("of that: reference", [&] {
    return reference_.path_for(group.problem, measured.planned->measured.inputs(), math);
  });
  const Verification found = in_distribution(member.worker->verify(reference),
                                             measured.planned->measured, measured.opened->facts);
  accept(found, when, measured);
  if (!found.usable()) {
    member.stop(Status::failed, when + found.reason);
  } else {
    passed_[key_of(measured.planned->measured)] = found;
  }
}

// Third-party workers do not report phases.
void GroupRunner::profile(Member& member) const {
  const GroupCase& planned = *member.measured->planned;
  if (planned.entry->foreign()) return;
  const int threads = std::max(1, planned.measured.threads);
  const PhaseRequest request = {
      threads, member.measured->calibration.runs_per_sample,
      std::min(options_.events_of_thread, protocol::most_events / threads)};
  member.attempt([&] {
    member.measured->profile = member.worker->profile(request);
    member.worker->settle();
  });
}

// Nanoseconds of a fixed piece of work that follows the machine's momentary speed. The CPU's own
// peak decides which, whatever math the group's variants use.
double GroupRunner::probe(const Group& group) const {
  const auto roof = roof_of(group.problem, ceilings_, "fp32", "", group.threads,
                            /*device=*/"", group.cache);
  const double bytes = group.problem.kernel().cost(group.problem).bytes;
  // Rows of a GPU are not held against the host's speed (roof_percentages): a short probe is
  // enough.
  const bool on_host =
      std::any_of(group.cases.begin(), group.cases.end(),
                  [](const GroupCase& planned) { return planned.measured.threads > 0; });
  const double ns = !on_host || (roof && roof->bound == "compute") || bytes <= 0
                        ? probe_fma_ns(group.threads)
                        : probe_copy_ns(bytes, group.threads);
  settle(getpid());
  return ns;
}

}  // namespace rooflane
