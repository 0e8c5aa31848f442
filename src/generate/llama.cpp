// GGUF's names and keys for llama models. See llama.hpp.
// Source: github.com/ggml-org/ggml, docs/gguf.md (keys, tensor names).
#include "generate/llama.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "model/library.hpp"

namespace rooflane::generate {
namespace {

constexpr std::array layer_weights = {"attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                      "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down"};
constexpr std::string_view embedding = "token_embd";
constexpr std::string_view output = "output";
constexpr std::string_view output_norm = "output_norm";
// Sizes of models lie far below; products of three stay exact in 64 bits.
constexpr std::int64_t largest_size = 1 << 20;

std::string key(std::string_view name) { return fmt::format("llama.{}", name); }

std::int64_t size_of_key(const Gguf& gguf, std::string_view name,
                         std::optional<std::int64_t> otherwise = std::nullopt) {
  std::optional<std::int64_t> value = gguf.integer(key(name));
  if (!value) value = otherwise;
  if (!value) throw gguf.bad(fmt::format("metadata '{}' is missing", key(name)));
  if (*value < 1 || *value > largest_size) {
    throw gguf.bad(
        fmt::format("metadata '{}' is {}; allowed are 1 to {}", key(name), *value, largest_size));
  }
  return *value;
}

double positive_key(const Gguf& gguf, std::string_view name, std::optional<double> otherwise) {
  std::optional<double> value = gguf.real(key(name));
  if (!value) value = otherwise;
  if (!value) throw gguf.bad(fmt::format("metadata '{}' is missing", key(name)));
  if (!(*value > 0) || !std::isfinite(*value)) {
    throw gguf.bad(
        fmt::format("metadata '{}' is {}; allowed are numbers above 0", key(name), *value));
  }
  return *value;
}

void require_equal(const Gguf& gguf, std::string_view name, std::int64_t wanted) {
  const std::int64_t value = gguf.integer(key(name)).value_or(wanted);
  if (value == wanted) return;
  throw gguf.bad(
      fmt::format("metadata '{}' is {}; computed is {} alone", key(name), value, wanted));
}

// Features that change what is computed, at the value that leaves them out.
void refuse_features(const Gguf& gguf, std::int64_t head_dim) {
  for (const char* name :
       {"rope.dimension_count", "attention.key_length", "attention.value_length"}) {
    require_equal(gguf, name, head_dim);
  }
  for (const char* name : {"expert_count", "attention.sliding_window"}) {
    require_equal(gguf, name, 0);
  }
  const std::string scaling = key("rope.scaling.type");
  if (const auto type = gguf.text(scaling); type && *type != "none") {
    throw gguf.bad(
        fmt::format("metadata '{}' is '{}'; computed is 'none' alone", scaling, printable(*type)));
  }
}

}  // namespace

LlamaSizes read_llama_sizes(const Gguf& gguf) {
  const auto architecture = gguf.text("general.architecture");
  if (!architecture) throw gguf.bad("metadata 'general.architecture' is missing");
  if (*architecture != "llama") {
    throw gguf.bad(fmt::format("architecture '{}'; allowed is 'llama'", printable(*architecture)));
  }
  LlamaSizes sizes{};
  sizes.layers = size_of_key(gguf, "block_count");
  sizes.width = size_of_key(gguf, "embedding_length");
  sizes.hidden = size_of_key(gguf, "feed_forward_length");
  sizes.heads = size_of_key(gguf, "attention.head_count");
  sizes.kv_heads = size_of_key(gguf, "attention.head_count_kv", sizes.heads);
  sizes.context = size_of_key(gguf, "context_length");
  sizes.norm_eps = positive_key(gguf, "attention.layer_norm_rms_epsilon", std::nullopt);
  sizes.rope_base = positive_key(gguf, "rope.freq_base", 10000.0);
  if (sizes.width % sizes.heads != 0 || sizes.width / sizes.heads % 2 != 0) {
    throw gguf.bad(fmt::format("{} heads share a width of {}; allowed are heads of an even size",
                               sizes.heads, sizes.width));
  }
  if (sizes.heads % sizes.kv_heads != 0) {
    throw gguf.bad(fmt::format("{} heads and {} kv heads; allowed is a divisor of the heads",
                               sizes.heads, sizes.kv_heads));
  }
  sizes.head_dim = sizes.width / sizes.heads;
  refuse_features(gguf, sizes.head_dim);
  const GgufTensor* const table = gguf.find_tensor(fmt::format("{}.weight", embedding));
  if (table == nullptr || table->shape.size() != 2) {
    throw gguf.bad(fmt::format("tensor '{}.weight' is missing or has not 2 axes", embedding));
  }
  sizes.vocabulary = table->shape[0];
  return sizes;
}

std::vector<std::int32_t> end_tokens(const Gguf& gguf, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const auto token = gguf.integer(key);
    if (!token) continue;
    if (*token < 0 || *token >= vocabulary) {
      throw gguf.bad(
          fmt::format("metadata '{}' is {}; allowed are 0 to {}", key, *token, vocabulary - 1));
    }
    tokens.push_back(static_cast<std::int32_t>(*token));
  }
  return tokens;
}

model::Instance llama_instance(const LlamaSizes& sizes, const LlamaLengths& lengths,
                               std::span<const Kernel* const> kernels,
                               const model::WeightFormat& format) {
  const auto with_rows = [&](std::int64_t rows) {
    return model::instantiate(model::read_model("llama"), "",
                              {{"layers", sizes.layers},
                               {"width", sizes.width},
                               {"heads", sizes.heads},
                               {"kv_heads", sizes.kv_heads},
                               {"hidden", sizes.hidden},
                               {"vocab", sizes.vocabulary},
                               {"past", lengths.past},
                               {"prompt", lengths.prompt},
                               {"rows", rows},
                               {"capacity", lengths.capacity}},
                              kernels, format);
  };
  model::Instance instance = with_rows(1);
  for (const std::int64_t rows : lengths.rows) {
    instance.phases.push_back(with_rows(rows).phases.back());
    instance.phases.back().name = "verify";
  }
  // Symbols are whole numbers; these are not.
  for (model::Phase& phase : instance.phases) {
    for (model::Call& call : phase.calls) {
      const std::string_view kernel = call.problem.kernel().name;
      if (kernel == "rmsnorm") call.problem.set("eps", sizes.norm_eps);
      if (kernel == "rope") call.problem.set("base", sizes.rope_base);
    }
  }
  return instance;
}

LlamaWeights::LlamaWeights(const Gguf& gguf, const LlamaSizes& sizes) : GgufWeights(gguf) {
  // Names are made for each layer: of no more layers than the file has tensors.
  for (std::int64_t layer = 0; sizes.layers > std::ssize(gguf.tensors()); ++layer) {
    const std::string first = fmt::format("blk.{}.{}.weight", layer, layer_weights.front());
    if (gguf.find_tensor(first) == nullptr) {
      throw gguf.bad(fmt::format("has no tensor '{}'", first));
    }
  }
  std::set<std::string, std::less<>> known;
  for (const std::string_view name : {embedding, output, output_norm}) {
    known.insert(fmt::format("{}.weight", name));
  }
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    for (const char* name : layer_weights) {
      known.insert(fmt::format("blk.{}.{}.weight", layer, name));
    }
  }
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (known.count(tensor.name) == 0) {
      throw gguf.bad(fmt::format("tensor '{}' has no place in a llama model of {} layers",
                                 printable(tensor.name), sizes.layers));
    }
  }
}

}  // namespace rooflane::generate
