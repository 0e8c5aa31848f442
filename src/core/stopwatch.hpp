// Seconds since it was made, by the steady clock.
#pragma once

#include <chrono>

namespace rooflane {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace rooflane
