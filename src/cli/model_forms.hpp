// The levels of `model --levels` that are other forms of the model: fused steps, short numbers, the
// formats of a file. Also `model --fuse`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/model_arguments.hpp"
#include "cli/model_weights.hpp"
#include "core/catalogue.hpp"
#include "model/chain.hpp"

namespace rooflane {

// A level: a model, its weights, and the variants that it takes, the first that serves a step.
struct ModelForm {
  std::string name;
  std::unique_ptr<model::Instance> instance;
  std::unique_ptr<model::WeightSource> own_weights;  // null: those of the model as it is
  const model::WeightSource* weights = nullptr;
  std::vector<std::string> preferred;
};

// Each form adds to the one before, but for the last two, which take a file's weights as they are:
//   fused      the model, with fused steps
//   bf16       products of bfloat16 numbers
//   int8       products of int8 weights, a scale a column, by activations with a scale a row
//   file       weights in the formats of --weights
//   file-int8  the same, products as in int8
// Those that would change nothing are left out. `plain`: the model as it is.
std::vector<ModelForm> forms_of(const ModelArguments& read, const model::Instance& plain,
                                const ModelWeights& weights, const model::ChainSettings& settings,
                                const Catalogue& catalogue);

// --fuse: as --levels' `fused`.
model::Instance fused_instance(const ModelArguments& read, const model::Instance& instance,
                               const model::ChainSettings& settings, const Catalogue& catalogue);

}  // namespace rooflane
