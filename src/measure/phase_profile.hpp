// Alternating samples with and without a recorder of phases: where a run's time goes, and the cost
// of recording. They are never part of a row's samples.
#pragma once

#include <cstdint>

#include "core/phase_recorder.hpp"
#include "measure/sampler.hpp"

namespace rooflane {

struct PhaseRequest {
  int threads = 1;          // of the plan, at most
  std::int64_t runs = 1;    // back to back in a sample
  std::int64_t events = 0;  // of each thread to keep for a trace; above 0: with each run as one
};

// Up to 15 pairs of samples; none is begun when 0.2 s have passed, as slow runs are disturbed
// little. `before` is called before each sample. Phases, time and events are those of the recorded
// sample with the median time; counters are the mean of all.
PhaseProfile profile_phases(RunCall run, FunctionRef<void()> before, const PhaseRequest& request);

}  // namespace rooflane
