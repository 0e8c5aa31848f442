// See model_weights.hpp.
#include "cli/model_weights.hpp"

#include <fmt/format.h>

#include "cli/terminal.hpp"
#include "model/gguf_weights.hpp"

namespace rooflane {

namespace {

template <class Body>
auto of_option(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--weights: ") + error.what());
  }
}

}  // namespace

ModelWeights::ModelWeights(const ModelArguments& read) {
  if (!read.weights.empty()) of_option([&] { gguf_.emplace(read.weights); });
  if (read.weight_type != nullptr) {
    format_ = model::matrices_in(read.weight_type);
  } else {
    format_ = file_format();
  }
}

model::WeightFormat ModelWeights::file_format() const {
  return [weights = model::GgufWeights(*gguf_)](const model::Tensor& weight) {
    return weights.format_of(weight);
  };
}

void ModelWeights::open(const ModelArguments& read, const model::Instance& instance) {
  if (!gguf_) {
    source_ = model::seeded_weights(instance.model, read.common.seed, read.common.threads.front());
    return;
  }
  of_option([&] {
    auto weights = std::make_unique<model::GgufWeights>(*gguf_);
    model::require_weights(instance, *weights);
    unread_ = weights->unread(instance);
    source_ = std::move(weights);
  });
}

void ModelWeights::note_unread() const {
  if (unread_.empty()) return;
  print_note(fmt::format("{} of the {} tensors of '{}' are not used: {}{}", unread_.size(),
                         gguf_->tensors().size(), gguf_->path(), unread_.front(),
                         unread_.size() > 1 ? ", ..." : ""));
}

}  // namespace rooflane
