// Where the time of a group goes: which cases still race, and whether their pairs are decided.
#pragma once

#include <span>
#include <vector>

#include "bench/row_assembly.hpp"

namespace rooflane {

// A case is out of the race when it is beyond doubt slower than this many times the leader.
inline constexpr double outrun_ratio = 1.5;
// Samples that a case out of the race gets: its row needs a median, no narrow interval.
inline constexpr std::size_t fewest_samples = 3;

struct Race {
  std::vector<bool> contender;  // by case: takes every round
  // By case: takes part in the next repetition. Who is out of the race does so until it has its
  // samples, and as long as a disturbed one of them leaves its pair undecided.
  std::vector<bool> wanted;
  // Every pair that a verdict rests on: the leader with each other contender that may win, and each
  // variant with its own of another build.
  bool decided = true;
  bool narrow = true;  // the contenders' ratios are known to ± 3 %, the leader's time as asked for
};

// `measured`: of the group's cases, with the samples of all repetitions so far. Ladders and pairs
// of a tuned schedule with the variant's own choice ask for every figure: there all are contenders.
Race race_of(const Group& group, std::span<const Measured> measured, const BenchOptions& options);

}  // namespace rooflane
