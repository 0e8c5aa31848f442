// `rooflane calibrate --learn`: measures problems that are drawn from a seed, or takes recorded
// times, fits the cost models' constants and says what that gained on unseen problems.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/learn.hpp"
#include "bench/model_times.hpp"
#include "cli/terminal.hpp"
#include "core/catalogue.hpp"
#include "core/traits.hpp"

namespace rooflane {

struct LearnRequest {
  int threads = 1;  // "all threads"
  double seconds = 600;
  std::uint64_t seed = 1;
};

// What was learned: traits with the constants that gained beyond doubt, of the others as before.
struct Learned {
  ModelConstants before, after;
  std::vector<Gain> gains;  // one for each cost model
  ModelConstants kept;
  bool gained() const { return !(kept == before); }
};

// Fits and checks with recorded times; one machine's constants are compared with those in its
// traits, several machines' with the shipped ones.
Learned learn_from(const std::vector<MachineTimes>& machines, ProgressLine& progress);

// Measures on this machine: problems that the fit sees first, then, with the candidates that the
// fitted constants add, the others. What was measured goes to `file`, too.
MachineTimes measure_times(const Catalogue& catalogue, const MeasuredTraits& traits,
                           const LearnRequest& request, TimesFile& file, ProgressLine& progress);

// Regret by class, gains and changed constants, for people.
std::string learned_text(const Learned& learned);

}  // namespace rooflane
