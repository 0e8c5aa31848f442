// A language model from a GGUF file: takes ids, returns the logits of the next one. Keeps its
// weights twice: as stored, for one token at a time, and packed, for many.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/llama.hpp"
#include "generate/phase_runner.hpp"
#include "generate/weight_prefetch.hpp"

namespace rooflane::generate {

struct Room {
  std::int64_t prompt = 1;              // tokens of each prefill
  std::int64_t tokens = 1;              // altogether
  std::vector<std::int64_t> rows = {};  // tokens of a `verify`, ascending; none: it is not called
};

class LanguageModel {
 public:
  // Throws Error(argument) for a file that is not such a model or has not the room,
  // Error(unavailable) where memory does not suffice.
  LanguageModel(const Gguf& gguf, const Room& room, const Catalogue& catalogue,
                const RunnerSettings& settings);

  const LlamaSizes& sizes() const { return sizes_; }
  const std::vector<std::int32_t>& end_tokens() const { return end_tokens_; }

  // Adds tokens behind `past` ones and returns the logits of the next: room.prompt ids at once, or
  // one. The logits are good until the next call.
  std::span<const float> prefill(std::span<const std::int32_t> ids, std::int64_t past);
  std::span<const float> decode(std::int32_t id, std::int64_t past);
  // Adds as many tokens as one of room.rows says and returns the logits behind each,
  // [rows, vocabulary]: those of so many calls of `decode` (row_pieces.hpp), in less time.
  std::span<const float> verify(std::span<const std::int32_t> ids, std::int64_t past);

  // Bytes that decoding behind `past` tokens must read: every weight that is multiplied with, and
  // the caches' rows so far.
  double decode_bytes(std::int64_t past) const;
  // Operations of kernels in a prefill, and in a token, behind `past` tokens.
  double prefill_operations(std::int64_t past) const;
  double decode_operations(std::int64_t past) const;
  // What multiplies in the largest products of each: PhaseRunner::instruction().
  std::string prefill_instruction() const { return prefill_.instruction(); }
  std::string decode_instruction() const { return decode_.instruction(); }

 private:
  // Gives back the weights that every phase reads packed.
  void drop_packed_weights();
  double operations(std::size_t phase, std::int64_t more) const;
  std::span<const float> run(std::size_t phase, PhaseRunner& runner,
                             std::span<const std::int32_t> ids, std::int64_t more);

  LlamaSizes sizes_;
  std::vector<std::int32_t> end_tokens_;
  LlamaWeights weights_;
  Room room_;
  DType kv_type_;
  model::Instance plain_;  // the first, before it took the settings' form
  StoredCaches first_, next_;
  std::unique_ptr<model::WeightSource> converted_;
  model::Memory memory_;
  WeightPrefetch prefetch_;  // of decoding
  std::unique_ptr<Pool> pool_;
  PhaseRunner prefill_, decode_;
  std::vector<PhaseRunner> verify_;  // for each of room.rows
};

}  // namespace rooflane::generate
