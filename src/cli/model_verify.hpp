// Verification of a model's chain, and what is printed of it.
#pragma once

#include <vector>

#include "model/check.hpp"

namespace rooflane {

struct Verified {
  bool good = false;
  std::vector<model::StepCheck> steps;
  std::vector<model::WholeCheck> whole;  // of small models
};

// Steps against references, and where that is quick the whole against those of `judge`, the chain's
// own model or one that must compute the same, from its weights.
Verified verify_model(model::Chain& chain, const model::Instance& judge,
                      const model::WeightSource& weights);

}  // namespace rooflane
