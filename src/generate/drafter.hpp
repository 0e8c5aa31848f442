// Guesses of the tokens to come, which the language model verifies several at a time (decoder.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/language_model.hpp"
#include "generate/token_sampler.hpp"

namespace rooflane::generate {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // How far the guess behind `text` is to be trusted, as one of `trusts` classes; 0: there is none.
  // Text grows at its end between calls.
  virtual int trust(std::span<const std::int32_t> text) = 0;
  // `count` tokens to come, when trust() was above 0 of the same text. Good until the next call.
  virtual std::span<const std::int32_t> draft(std::span<const std::int32_t> text,
                                              std::int64_t count) = 0;

  static constexpr int trusts = 8;
};

// What followed the last tokens where they stood before: of all earlier places, the one that agrees
// with the end of the text in the most tokens, of those the latest. The class of trust is in how
// many it agrees. Source: github.com/apoorvumang/prompt-lookup-decoding (Saxena, 2023).
class NgramDrafter final : public Drafter {
 public:
  int trust(std::span<const std::int32_t> text) override;
  std::span<const std::int32_t> draft(std::span<const std::int32_t> text,
                                      std::int64_t count) override;

 private:
  std::int64_t behind_ = 0;  // where the guess begins in the text
  std::vector<std::int32_t> draft_;
};

// A smaller model of the same vocabulary. It chooses as the large one does, with the same random
// numbers, so that both draw the same token where they find it about as likely.
class ModelDrafter final : public Drafter {
 public:
  // The prompt is read at once, what follows token by token. Throws as LanguageModel does, and
  // Error(argument) where the files' vocabularies differ.
  ModelDrafter(const Gguf& gguf, const Gguf& large, std::span<const std::int32_t> prompt,
               std::int64_t tokens, const Catalogue& catalogue, const RunnerSettings& runner,
               const SamplerSettings& sampler);
  int trust(std::span<const std::int32_t> text) override;
  std::span<const std::int32_t> draft(std::span<const std::int32_t> text,
                                      std::int64_t count) override;

 private:
  std::int64_t prompt_, tokens_;
  LanguageModel model_;
  TokenSampler sampler_;
  std::vector<std::int32_t> seen_;  // tokens that the model's caches hold
  std::vector<std::int32_t> draft_;
};

}  // namespace rooflane::generate
