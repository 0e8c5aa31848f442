// Is a model right? Each step against its kernel's double-precision reference on the very inputs
// that the chain hands it, and the whole against the references one after another, within a bound
// that grows from the steps' bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/verify.hpp"
#include "model/chain.hpp"

namespace rooflane::model {

struct StepCheck {
  std::size_t phase = 0;
  std::size_t step = 0;
  const CatalogueEntry* entry = nullptr;
  Verification verification;  // the worst of its calls
  std::size_t calls = 0;      // compared; equal problems of a large model only once
};

// Runs every phase once with the first runners and compares every runner of every call, or, in a
// phase of more than 2e8 flops, of the first call of each problem of a step.
std::vector<StepCheck> check_steps(Chain& chain);

double flops_of(const Phase& phase);
// At most 2e8 flops in all phases together: references of everything take seconds.
bool is_small(const Instance& instance);

struct WholeCheck {
  std::size_t phase = 0;
  std::string tensor;
  double error = 0;  // largest absolute one
  double bound = 0;
  bool reference_is_finite = true;  // otherwise the bound says nothing

  bool passed() const { return reference_is_finite && error <= bound; }
};

// Runs all phases with `choices`, one each, and then the references. Costs some times as many flops
// in double precision as there are: for small sizes only.
std::vector<WholeCheck> check_whole(Chain& chain, const WeightSource& weights,
                                    const std::vector<Choice>& choices);
// The same against another form of the model, with the same tensors first: what fused steps
// compute, judged by the steps that they are made of.
std::vector<WholeCheck> check_whole(Chain& chain, const std::vector<Choice>& choices,
                                    const Instance& judge, const WeightSource& weights);

// What the outputs of a run with these choices hold: by phase and tensor, empty but for outputs.
using OutputValues = std::vector<std::vector<std::vector<double>>>;
OutputValues output_values(Chain& chain, const std::vector<Choice>& choices);

// A checksum of a phase's outputs, and where one is not finite; empty: nowhere.
std::uint64_t output_hash(const Chain& chain, std::size_t phase);
std::string not_finite(const Chain& chain, std::size_t phase);

}  // namespace rooflane::model
