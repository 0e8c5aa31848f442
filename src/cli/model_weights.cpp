// See model_weights.hpp.
#include "cli/model_weights.hpp"

#include <fmt/format.h>

#include "cli/terminal.hpp"
#include "model/gguf_weights.hpp"

namespace rooflane {

ModelWeights::ModelWeights(const ModelArguments& read, const model::Instance& instance) {
  if (read.weights.empty()) {
    source_ = model::seeded_weights(instance.model, read.common.seed, read.common.threads.front());
    return;
  }
  try {
    gguf_.emplace(read.weights);
    auto weights = std::make_unique<model::GgufWeights>(*gguf_);
    model::require_weights(instance, *weights);
    unread_ = weights->unread(instance);
    source_ = std::move(weights);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--weights: ") + error.what());
  }
}

void ModelWeights::note_unread() const {
  if (unread_.empty()) return;
  print_note(fmt::format("{} of the {} tensors of '{}' are not read: {}{}", unread_.size(),
                         gguf_->tensors().size(), gguf_->path(), unread_.front(),
                         unread_.size() > 1 ? ", ..." : ""));
}

}  // namespace rooflane
