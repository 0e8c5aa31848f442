// Times several plans of a problem in the same rounds, in one process: for programs that compare
// schedules with each other. What a user may quote is measured by rounds.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/statistics.hpp"
#include "core/stopwatch.hpp"
#include "core/variant.hpp"

namespace rooflane {

// A timing is of as many runs as take this long.
inline constexpr double sample_ns = 50e3;

struct Timed {
  std::unique_ptr<Plan> plan;
  std::int64_t runs = 1;
  std::vector<double> samples;
  double median_ns() const { return median(samples); }
};

inline double time_ns(Timed& timed) {
  timed.plan->run();  // the one before may have left other things in the caches
  const Stopwatch watch;
  for (std::int64_t i = 0; i < timed.runs; ++i) timed.plan->run();
  return watch.seconds() * 1e9 / static_cast<double>(timed.runs);
}

// Every fifth round, a plan is dropped if `gives_up(timed, best median so far)` is true.
template <class GivesUp>
void time_in_rounds(std::vector<Timed*> all, int rounds, double budget_s, const GivesUp& gives_up) {
  const Stopwatch watch;
  for (Timed* timed : all) {
    timed->samples.clear();
    const double first = std::min(time_ns(*timed), time_ns(*timed));
    timed->runs = std::clamp<std::int64_t>(static_cast<std::int64_t>(sample_ns / first), 1, 10000);
  }
  for (int round = 1; round <= rounds; ++round) {
    for (Timed* timed : all) timed->samples.push_back(time_ns(*timed));
    std::rotate(all.begin(), all.begin() + 1, all.end());
    if (round < 5) continue;
    if (watch.seconds() > budget_s) break;
    if (round % 5 != 0) continue;
    double best_ns = all.front()->median_ns();
    for (const Timed* timed : all) best_ns = std::min(best_ns, timed->median_ns());
    std::erase_if(all, [&](const Timed* timed) { return gives_up(*timed, best_ns); });
  }
}
inline void time_in_rounds(const std::vector<Timed*>& all, int rounds, double budget_s) {
  time_in_rounds(all, rounds, budget_s, [](const Timed&, double) { return false; });
}

}  // namespace rooflane
