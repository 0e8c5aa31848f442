// Measures a model in rounds: in each, every phase runs as it is (twice), with each swap of
// variants, and with variants drawn call by call, in an order shuffled from the seed. What the
// times mean: amdahl.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/chain.hpp"

namespace rooflane::model {

// Other runners for some steps of a phase.
struct Swap {
  std::string name;                   // "gemm=blas"
  std::vector<std::uint8_t> of_step;  // of each step; 0: as it is
};

// Nanoseconds of a run, means over the runs of a slot; one entry a round.
struct PhaseRounds {
  std::size_t phase = 0;
  std::int64_t runs_per_turn = 1;
  std::vector<double> whole;               // as it is
  std::vector<std::vector<double>> steps;  // [round][step]: all calls of a step together
  std::vector<Swap> swaps;
  std::vector<std::vector<double>> swap_whole;               // [swap][round]
  std::vector<std::vector<std::vector<double>>> swap_steps;  // [swap][round][step]
  // [round][step][runner]: a call by itself, the mean over the calls of a step, with the runner
  // that it drew. Every call has each of its runners equally often; what ran before it in the chain
  // is real, so that it finds its operands as the chain leaves them. 0: not drawn.
  std::vector<std::vector<std::vector<double>>> drawn;
  int disturbed = 0;  // slots during which something interfered
  int repeated = 0;   // slots measured again for that
};

// What one round gave a phase; as in PhaseRounds.
struct PhaseRound {
  std::int64_t runs_per_turn = 1;
  double whole = 0;
  std::vector<double> steps, swap_whole;
  std::vector<std::vector<double>> swap_steps, drawn;
  int disturbed = 0, repeated = 0;  // of all rounds so far
};
using Round = std::vector<PhaseRound>;  // of every phase of every chain, in their order

struct RoundsSettings {
  double seconds = 10;      // for the rounds of all phases; then no more than the fewest
  double interval_pct = 1;  // half width of every whole's interval that is enough
  int fewest = 7;
  std::function<void(int round)> progress;
  std::vector<Round> earlier;  // of a measurement that was interrupted, which goes on
  std::function<void(const Round&)> on_round;
};

// Swaps of each phase of a chain.
struct ChainSwaps {
  Chain* chain = nullptr;
  std::vector<std::vector<Swap>> of_phase;
};
// Several chains in the same rounds, their slots shuffled together; phases of each. The seed is the
// first one's. Throws Error(argument) for earlier rounds of other steps.
std::vector<std::vector<PhaseRounds>> take_rounds(const std::vector<ChainSwaps>& chains,
                                                  const RoundsSettings& settings);
// One chain; `swaps`: of each phase.
std::vector<PhaseRounds> take_rounds(Chain& chain, const std::vector<std::vector<Swap>>& swaps,
                                     const RoundsSettings& settings);

// The runner of each call, from those of steps.
Choice choice_of(const Phase& phase, const std::vector<std::uint8_t>& of_step);
// The first runner of every call, of each phase.
std::vector<Choice> as_it_is(const Chain& chain);

}  // namespace rooflane::model
