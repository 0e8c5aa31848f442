// Where the time of a run goes: seconds by activity, for `bench --profile`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "measure/sampler.hpp"

namespace rooflane {

class TimeUse {
 public:
  // Runs a step and counts its time to `what`, also when it throws.
  template <class Step>
  decltype(auto) timed(const char* what, Step&& step) {
    const struct Stop {
      TimeUse& use;
      const char* what;
      double begin_ns = steady_clock_ns();
      ~Stop() { use.add(what, (steady_clock_ns() - begin_ns) * 1e-9); }
    } stop{*this, what};
    return std::forward<Step>(step)();
  }
  // Time that is known otherwise; below 0 it moves to another activity.
  void add(const std::string& what, double seconds);

  // Activities in the order of their first step: name, seconds, steps.
  struct Activity {
    std::string what;
    double seconds = 0;
    int steps = 0;
  };
  const std::vector<Activity>& activities() const { return activities_; }

 private:
  std::vector<Activity> activities_;
};

}  // namespace rooflane
