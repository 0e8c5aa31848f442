// Rounds and turns. See group_runner.hpp.
#include "bench/group_runner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/seeds.hpp"
#include "measure/process_usage.hpp"
#include "measure/sampler.hpp"

namespace rooflane {

namespace {

// Enough rounds for a bootstrap interval of the median that is narrower than the range.
constexpr int fewest_rounds = 7;
// When time runs out; also for variants far slower than the rest.
constexpr int fewest_rounds_in_haste = 3;
constexpr int most_rounds = 1000;
// A variant is slow when one run takes 20 times as long as the fastest of the group and longer than
// 0.1 s: it would turn a group of milliseconds into one of minutes.
constexpr double slow_ratio = 20;
constexpr double slow_run_ns = 1e8;

// Predicting costs a small run; problems that even 0.05 GFLOP/s finishes in time need none.
constexpr double assumed_flops_per_ns = 0.05;
// About 10 ms of plain loops: long enough to time, too short to notice.
constexpr double small_problem_flops = 1e7;

// The problem with its largest sizes halved until it is small.
Problem shrunk(Problem problem) {
  while (problem.kernel().cost(problem).flops > small_problem_flops) {
    std::vector<std::pair<std::int64_t, const char*>> sizes;
    for (const ParamSpec& param : problem.kernel().params) {
      if (param.kind == ParamKind::size) sizes.emplace_back(problem.size(param.name), param.name);
    }
    std::sort(sizes.rbegin(), sizes.rend());
    const auto halve = [&](const auto& size) {
      Problem smaller = problem;
      try {
        const std::int64_t half = size.first / 2;
        smaller.set(size.second, static_cast<double>(half));
        smaller.check();
      } catch (const Error&) {
        return false;  // heads must stay a multiple of kv_heads, say
      }
      problem = smaller;
      return true;
    };
    if (std::none_of(sizes.begin(), sizes.end(),
                     [&](const auto& size) { return size.first >= 2 && halve(size); })) {
      break;
    }
  }
  return problem;
}

void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

// One case while its group runs.
struct GroupRunner::Member {
  Measured measured;
  Worker* worker = nullptr;
  bool active = true;  // still to be measured
  bool slow = false;
  double timed_ns = 0;  // timed work so far

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
    measured.status = status;
    measured.reason = reason;
    active = false;
  }
};

std::vector<Measured> GroupRunner::run(const Group& group, double seconds,
                                       const GroupCallbacks& callbacks) {
  std::vector<Member> members(group.cases.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i].measured.planned = &group.cases[i];
    members[i].measured.affinity = workers_.affinity_of(group.cases[i].measured);
    open(members[i]);
  }
  for (Member& member : members) verify(member, group);
  for (Member& member : members) {
    member.attempt([&] {
      member.measured.calibration = member.worker->calibrate();
      member.worker->settle();
    });
  }
  take_rounds(members, group, seconds, callbacks);
  for (Member& member : members) {
    verify(member, group);
    member.attempt([&] { member.measured.peak_rss_bytes = member.worker->peak_rss_bytes(); });
    // Also of a case that failed: its memory is others' by now.
    try {
      member.worker->close();
    } catch (const WorkerError&) {
      // It died; the next open starts another.
    }
  }
  std::vector<Measured> measured;
  for (Member& member : members) measured.push_back(std::move(member.measured));
  return measured;
}

void GroupRunner::open(Member& member) {
  const GroupCase& planned = *member.measured.planned;
  member.worker = &workers_.worker_for(planned.measured);
  member.attempt([&] {
    if (const auto predicted = predicted_seconds(planned);
        predicted && *predicted > options_.scalar_run_seconds) {
      member.stop(Status::skipped,
                  fmt::format("one run would take about {:.1f} s, allowed are {:g} s", *predicted,
                              options_.scalar_run_seconds));
      return;
    }
    member.measured.opened = member.worker->open(planned.measured);
    member.worker->settle();
  });
}

// Seconds that one run of a one-thread variant will take, from its speed on a small problem.
std::optional<double> GroupRunner::predicted_seconds(const GroupCase& planned) {
  const Case& c = planned.measured;
  if (planned.entry->variant->threads != Threads::one) return std::nullopt;
  const double flops = c.problem.kernel().cost(c.problem).flops;
  if (flops <= options_.scalar_run_seconds * 1e9 * assumed_flops_per_ns) return std::nullopt;
  const std::string key = fmt::format("{} {}", c.problem.kernel().name, c.variant);
  auto speed = flops_per_ns_.find(key);
  if (speed == flops_per_ns_.end()) {
    Case small = c;
    small.problem = shrunk(c.problem);
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

// Before the rounds and again after them: a failed row carries no speed.
void GroupRunner::verify(Member& member, const Group& group) {
  member.attempt([&] {
    const bool again = member.measured.verification.has_value();
    member.measured.verification =
        member.worker->verify(reference_.path_for(group.problem, options_.seed));
    if (!member.measured.verification->passed) {
      member.stop(Status::failed, fmt::format("{}{}", again ? "after the measurement: " : "",
                                              member.measured.verification->reason));
    }
    member.worker->settle();
  });
}

// Nanoseconds of a fixed piece of work that follows the machine's momentary speed.
double GroupRunner::probe(const Group& group) const {
  const auto roof = roof_of(group.problem, ceilings_, options_.math, "", group.threads,
                            /*device=*/"", group.cache);
  const double bytes = group.problem.kernel().cost(group.problem).bytes;
  const double ns = (roof && roof->bound == "compute") || bytes <= 0
                        ? probe_fma_ns(group.threads)
                        : probe_copy_ns(bytes, group.threads);
  settle(getpid());
  return ns;
}

void GroupRunner::take_rounds(std::vector<Member>& members, const Group& group, double seconds,
                              const GroupCallbacks& callbacks) {
  std::vector<Member*> order;
  double fastest_ns = std::numeric_limits<double>::infinity();
  for (Member& member : members) {
    if (!member.active) continue;
    order.push_back(&member);
    fastest_ns = std::min(fastest_ns, member.measured.calibration.run_ns);
  }
  for (Member* member : order) {
    const double run_ns = member->measured.calibration.run_ns;
    member->slow = run_ns > slow_run_ns && run_ns > slow_ratio * fastest_ns;
  }
  const double begin = steady_clock_ns();
  std::uint64_t random = options_.seed ^ fnv1a64(group.title());
  for (int round = 0; round < most_rounds; ++round) {
    std::erase_if(order, [&](const Member* member) {
      return !member->active || (member->slow && round >= fewest_rounds_in_haste);
    });
    if (order.empty()) return;
    const double elapsed = (steady_clock_ns() - begin) * 1e-9;
    double least_timed_ns = std::numeric_limits<double>::infinity();
    for (const Member* member : order) least_timed_ns = std::min(least_timed_ns, member->timed_ns);
    const bool enough = round >= fewest_rounds && least_timed_ns >= options_.min_time * 1e9;
    if (enough || (round >= fewest_rounds_in_haste && elapsed >= seconds)) return;
    const double rounds_done = std::min(static_cast<double>(round) / fewest_rounds,
                                        least_timed_ns / (options_.min_time * 1e9 + 1));
    callbacks.on_progress(std::clamp(std::max(rounds_done, elapsed / seconds), 0.0, 1.0));

    const double probe_ns = probe(group);
    // Fisher and Yates' shuffle; std::shuffle's order is the library's choice.
    for (std::size_t i = order.size(); i > 1; --i) {
      random += 0x9e3779b97f4a7c15;
      std::swap(order[i - 1], order[splitmix64(random) % i]);
    }
    for (Member* member : order) {
      member->attempt([&] {
        Measured& measured = member->measured;
        const Samples samples = member->worker->sample(1, measured.calibration.runs_per_sample);
        append(measured.ns, samples.ns);
        measured.probe_ns.resize(measured.ns.size(), probe_ns);
        append(measured.device.h2d_ns, samples.h2d_ns);
        append(measured.device.kernel_ns, samples.kernel_ns);
        append(measured.device.d2h_ns, samples.d2h_ns);
        append(measured.device.e2e_ns, samples.e2e_ns);
        for (const double ns : samples.ns) {
          member->timed_ns += ns * static_cast<double>(measured.calibration.runs_per_sample);
          callbacks.on_sample({measured.planned->row, 1, round, ns, probe_ns});
        }
        member->worker->settle();
      });
    }
  }
}

}  // namespace rooflane
