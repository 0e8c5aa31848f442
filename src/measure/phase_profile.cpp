// Pairs of samples, and the profile that they make. See phase_profile.hpp.
#include "measure/phase_profile.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/statistics.hpp"
#include "measure/hardware_counters.hpp"

namespace rooflane {

namespace {

// The profile of one run, the mean over `runs`.
PhaseProfile profile_of(const PhaseTimes& times, std::int64_t runs) {
  PhaseProfile profile;
  profile.runs = runs;
  profile.run_ns = times.wall_ns / static_cast<double>(runs);
  for (ThreadPhase phase : times.phases) {
    phase.ns /= static_cast<double>(runs);
    phase.times /= static_cast<double>(runs);
    profile.phases.push_back(phase);
  }
  profile.events = times.events;
  profile.dropped = times.dropped;
  return profile;
}

}  // namespace

PhaseProfile profile_phases(RunCall run, FunctionRef<void()> before, const PhaseRequest& request) {
  constexpr int most_pairs = 15;
  constexpr double most_ns = 200e6;
  PhaseRecorder recorder(request.threads, static_cast<std::size_t>(request.events));
  HardwareCounters counters;
  const bool traced = request.events > 0;
  const auto traced_run = [&] {
    const PhaseTimer timer(traced ? phase_log : nullptr, RunPhase::run);
    run();
  };
  std::vector<double> plain;
  std::vector<PhaseProfile> recorded;
  const auto record = [&] {
    before();
    counters.start();
    recorder.begin();
    for (std::int64_t i = 0; i < request.runs; ++i) traced_run();
    recorder.end();
    counters.stop();
    recorded.push_back(profile_of(recorder.times(), request.runs));
  };
  const auto leave_alone = [&] {
    before();
    plain.push_back(time_runs(run, request.runs, steady_clock_ns));
  };
  const double begin = steady_clock_ns();
  for (int pair = 0; pair < most_pairs; ++pair) {
    if (pair > 0 && steady_clock_ns() - begin > most_ns) break;
    // In either order, so that what lasts over both halves of a pair favours neither.
    if (pair % 2 == 0) leave_alone();
    record();
    if (pair % 2 != 0) leave_alone();
  }
  const auto middle = recorded.begin() + static_cast<std::ptrdiff_t>(recorded.size() / 2);
  std::nth_element(
      recorded.begin(), middle, recorded.end(),
      [](const PhaseProfile& x, const PhaseProfile& y) { return x.run_ns < y.run_ns; });
  PhaseProfile profile = std::move(*middle);
  profile.plain_ns = median(plain);
  const auto all_runs = static_cast<double>(request.runs) * static_cast<double>(recorded.size());
  for (const auto& [name, count] : counters.counts()) {
    profile.counters.emplace_back(name, count / all_runs);
  }
  return profile;
}

}  // namespace rooflane
