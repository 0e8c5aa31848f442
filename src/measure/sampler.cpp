// The loop around a run. See sampler.hpp.
#include "measure/sampler.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "core/statistics.hpp"

namespace rooflane {

double SteadyClock::operator()() const {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count());
}

double clock_cost_ns(Clock now) {
  constexpr int readings = 1001;
  std::vector<double> costs;
  for (int i = 0; i < readings; ++i) {
    const double start = now();
    costs.push_back(now() - start);
  }
  return median(costs);
}

double warm_up(RunCall run, Clock now) {
  constexpr int most_runs = 20;
  constexpr double most_ns = 5e6;
  constexpr double agreement = 0.05;
  const double begin = now();
  double start = begin;
  double previous = 0;
  for (int i = 0;; ++i) {
    run();
    const double end = now();
    const double elapsed = end - start;
    if (i > 0 && std::abs(elapsed - previous) <= agreement * std::max(elapsed, previous)) {
      return elapsed;
    }
    if (i + 1 == most_runs || end - begin >= most_ns) return elapsed;
    previous = elapsed;
    start = end;
  }
}

double time_runs(RunCall run, std::int64_t runs, Clock now) {
  const double start = now();
  for (std::int64_t i = 0; i < runs; ++i) run();
  return (now() - start) / static_cast<double>(runs);
}

double undisturbed_run_ns(RunCall run, Clock now) {
  constexpr int timings = 5;
  constexpr double most_ns = 50e6;
  double least = warm_up(run, now);
  const double begin = now();
  for (int i = 0; i < timings && now() - begin + least <= most_ns; ++i) {
    // The clock's cost and grain disturb a single short run.
    const std::int64_t runs = (runs_for_sample(least) + 3) / 4;
    least = std::min(least, time_runs(run, runs, now));
  }
  return least;
}

std::int64_t runs_for_sample(double run_ns) {
  // An empty problem returns at once; a million runs still make a sample of a few milliseconds.
  constexpr double most_runs = 1e6;
  if (!(run_ns > 0)) return static_cast<std::int64_t>(most_runs);
  return static_cast<std::int64_t>(std::clamp(std::ceil(least_sample_ns / run_ns), 1.0, most_runs));
}

bool wait_until_still(Clock cpu_now, double seconds) {
  const double give_up = steady_clock_ns() + seconds * 1e9;
  double cpu = cpu_now();
  double real = steady_clock_ns();
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const double cpu_later = cpu_now();
    const double real_later = steady_clock_ns();
    if (cpu_later - cpu <= 0.05 * (real_later - real)) return true;
    if (real_later >= give_up) return false;
    cpu = cpu_later;
    real = real_later;
  }
}

}  // namespace rooflane
