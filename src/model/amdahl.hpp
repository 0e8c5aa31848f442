// Amdahl's law with intervals: what a faster or slower step means to the whole, predicted from the
// shares of steps and the ratios of calls, and held against what a swap really gave. Pure
// functions of rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/statistics.hpp"
#include "model/rounds.hpp"

namespace rooflane::model {

// A figure with its 95 % interval, by bootstrap over rounds.
struct Figure {
  double value = 0;
  Interval interval;
};

// A step's part of the whole, and what the whole would gain if the step took no time.
struct Share {
  Figure share;      // in [0,1]
  double limit = 0;  // 1 / (1 - share); infinite when the step is all there is
};
std::vector<Share> shares_of(const PhaseRounds& rounds, std::uint64_t seed);

// S = 1 / ((1 - Σ f) + Σ f/s) over swapped steps, f a step's share of the whole as it is, s the
// time of its calls over their time with the other runner.
struct Proof {
  Figure predicted;
  Figure measured;        // the whole as it is over the swapped one, in the same rounds
  double difference = 0;  // measured - predicted, in points: hundredths of the whole's speed
  // What the difference is made of, in the same points: swapped steps took another time than
  // predicted; other steps took another time than before (caches, threads, hand-over). What is left
  // is that medians do not add up.
  double from_swapped = 0;
  double from_others = 0;
};
Proof prove(const PhaseRounds& rounds, std::size_t swap, std::uint64_t seed);

}  // namespace rooflane::model
