// `model --levels`: the whole with plain loops, with BLAS, with Highway, then in other forms.
// Measures time, memory, error, and the growth of time with batch and length.
#pragma once

#include <string>
#include <vector>

#include "cli/model_arguments.hpp"
#include "cli/model_forms.hpp"
#include "cli/model_verify.hpp"
#include "model/check.hpp"
#include "model/rounds.hpp"

namespace rooflane {

// Variants, the plainest first; what a level lacks the one before does.
std::vector<std::string> level_names();

struct LevelErrors {
  // [phase][level]: the largest error of a step in units of its bound, and of a small model's
  // outputs, absolute; empty where the model is large.
  std::vector<std::vector<double>> steps;
  std::vector<std::vector<double>> whole;
  // The largest difference between the outputs and those of the last variant, unchanged float32;
  // and that over the largest output.
  struct Difference {
    double absolute = 0, relative = 0;
  };
  std::vector<std::vector<Difference>> differences;
};
LevelErrors level_errors(model::Chain& chain, const model::WeightSource& weights,
                         const std::vector<std::vector<model::Swap>>& levels,
                         const std::vector<model::StepCheck>& checks);

// A form at work.
struct FormRun {
  const ModelForm* form = nullptr;
  std::unique_ptr<model::Chain> chain;
  Verified verified;
  std::vector<model::PhaseRounds> rounds;
};
// Plans and verifies each. Fused steps must compute what the model as it is does, within the bounds
// of its steps; other numbers what their own steps say.
std::vector<FormRun> plan_forms(const std::vector<ModelForm>& forms, const model::Instance& plain,
                                const model::WeightSource& weights,
                                const model::ChainSettings& settings, const Catalogue& catalogue);
// Fills errors.differences, and the errors of forms behind those of levels.
void add_differences(model::Chain& chain, const std::vector<std::vector<model::Swap>>& levels,
                     const std::vector<FormRun>& runs, LevelErrors& errors);

void print_levels(const model::Chain& chain, const std::vector<model::PhaseRounds>& rounds,
                  const std::vector<FormRun>& runs, const LevelErrors& errors);
// Measures the model, as it is, at smaller values of `batch` and `len` where it has such symbols.
void print_growth(const ModelArguments& read, const model::ChainSettings& settings,
                  const Catalogue& catalogue, const model::WeightFormat& format);

}  // namespace rooflane
