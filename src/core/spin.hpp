// Waiting for other threads without giving the CPU away, for a while.
#pragma once

#include <chrono>

namespace rooflane {

// One step of a spinning wait.
void relax();

// Whether so many threads have a CPU each, and may spin for one another.
bool may_spin(int threads);  // in parallel.cpp

// How long a thread spins for what it waits for: twice what waking a sleeping one takes where the
// CPU has gone to sleep too (50 us), so that waiting costs at most three times the least.
inline constexpr std::chrono::microseconds spinning_patience{100};

// Spins until `done` or until patience is at its end; whether it is done.
template <class Done>
bool spin_until(const Done& done, std::chrono::microseconds patience) {
  constexpr int steps_between_looks = 64;  // a look at the clock takes as long as one or two steps
  const auto some_steps = [&] {
    for (int step = 0; step < steps_between_looks; ++step) {
      if (done()) return true;
      relax();
    }
    return false;
  };
  if (some_steps()) return true;
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    if (some_steps()) return true;
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace rooflane
