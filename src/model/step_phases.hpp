// What the threads of a chain do during each step: pack, wait, and else compute.
#pragma once

#include <vector>

#include "model/chain.hpp"

namespace rooflane::model {

// Per cent of a step's time on all threads.
struct StepPhases {
  double packing_pct = 0;
  double waiting_pct = 0;  // for the start of a region, for others, and where a step uses fewer
};

// From some runs of the phase as it is, one recording a call.
std::vector<StepPhases> step_phases(Chain& chain, std::size_t phase);

}  // namespace rooflane::model
