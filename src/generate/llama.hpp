// Models of the architecture `llama` in GGUF files: their sizes from the metadata, and their
// tensors as the weights of the model `llama` (bench/models/llama.txt). How they are run:
// language_model.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/gguf.hpp"
#include "model/gguf_weights.hpp"
#include "model/instance.hpp"

namespace rooflane::generate {

struct LlamaSizes {
  std::int64_t layers, width, heads, kv_heads, head_dim, hidden, vocabulary;
  std::int64_t context;  // tokens that the model was made for
  double norm_eps, rope_base;
};

// Throws Error(argument), one line with the file's name: another architecture, a key that is
// missing or has an impossible value, features that are not computed (experts, scaled positions,
// sliding windows, heads of another size than width / heads).
LlamaSizes read_llama_sizes(const Gguf& gguf);

// The file's tokens that end a text: at the end of the text, of an answer, of a message.
std::vector<std::int32_t> end_tokens(const Gguf& gguf, std::int64_t vocabulary);

struct LlamaLengths {
  std::int64_t past, prompt;            // tokens
  std::int64_t capacity;                // tokens altogether, at most
  std::vector<std::int64_t> rows = {};  // tokens of each phase `verify`
};
// The model with phases `prefill` of the prompt's tokens, which come after those past, `decode` of
// the token behind them, and any number of `verify`, of some tokens behind them, each with its
// logits.
model::Instance llama_instance(const LlamaSizes& sizes, const LlamaLengths& lengths,
                               std::span<const Kernel* const> kernels,
                               const model::WeightFormat& format);

// All of the file's tensors.
class LlamaWeights final : public model::GgufWeights {
 public:
  // Throws Error(argument) for a tensor that has no place in the model: it would be left out of the
  // computation.
  LlamaWeights(const Gguf& gguf, const LlamaSizes& sizes);
};

}  // namespace rooflane::generate
