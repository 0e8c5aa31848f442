// Language models in GGUF files: an accepted one has sizes, tokens that end a text, and weights for
// every tensor of the model that it describes.
#include "generate/llama.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

void llama_target(std::string_view input) {
  const Gguf gguf(input, "fuzz.gguf");
  const generate::LlamaSizes sizes = generate::read_llama_sizes(gguf);
  for (const std::int32_t token : generate::end_tokens(gguf, sizes.vocabulary)) {
    require(token >= 0 && token < sizes.vocabulary);
  }
  const generate::LlamaWeights weights(gguf, sizes);
  const auto format = [&](const model::Tensor& weight) { return weights.format_of(weight); };
  const model::Instance instance =
      generate::llama_instance(sizes, {0, 2, 6, {2}}, all_kernels(), format);
  require(!instance.phases.empty());
}

}  // namespace rooflane::fuzz
