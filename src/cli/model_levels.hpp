// `model --levels`: the whole by plain loops, by BLAS, by Highway: time, memory, error, and how
// time grows with batch and length.
#pragma once

#include <string>
#include <vector>

#include "cli/model_arguments.hpp"
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
};
LevelErrors level_errors(model::Chain& chain, const model::WeightSource& weights,
                         const std::vector<std::vector<model::Swap>>& levels,
                         const std::vector<model::StepCheck>& checks);

void print_levels(const model::Chain& chain, const std::vector<model::PhaseRounds>& rounds,
                  const LevelErrors& errors);
// Measures the model, as it is, at smaller values of `batch` and `len` where it has such symbols.
void print_growth(const ModelArguments& read, const model::ChainSettings& settings,
                  const Catalogue& catalogue, const model::WeightFormat& format);

}  // namespace rooflane
