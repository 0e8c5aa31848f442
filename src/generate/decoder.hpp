// Token after token from a language model, some of them guessed beforehand and verified together.
// Text is the same with and without guesses: a token is always the one that the sampler chooses by
// the logits of the model, and verified logits are, bit for bit, those of decoding one by one.
// Source: Leviathan et al., arXiv 2211.17192; guesses are certain, so that theirs is accepted which
// would have been chosen.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "generate/drafter.hpp"
#include "generate/language_model.hpp"
#include "generate/token_sampler.hpp"

namespace rooflane::generate {

// Tokens of one `verify`: as many as units multiply while b is read once, and half of them, for
// guesses that are less sure.
inline const std::vector<std::int64_t> draft_rows = {4, 8};

enum class Guessing {
  where_it_pays,  // by the times of passes and how often guesses were right
  always,         // with all rows of the widest pass
};

struct DecoderCounts {
  double prompt_seconds = 0, seconds = 0;  // seconds: of all tokens but the first
  std::int64_t tokens = 0;                 // decoded in them
  double bytes = 0;                        // that had to be read for them
  std::int64_t passes = 0;                 // of the model for them
  std::int64_t drafted = 0, accepted = 0;  // tokens
  // Whether verified logits were other than those of decoding one by one; no more is guessed then.
  bool differs = false;
};

class Decoder {
 public:
  // Reads the prompt. `drafter`: null, or what guesses; the model has draft_rows then. Both and the
  // sampler must outlive it.
  Decoder(LanguageModel& model, TokenSampler& sampler, Drafter* drafter, Guessing guessing,
          std::span<const std::int32_t> prompt);

  struct Token {
    std::int32_t id;
    std::span<const float> logits;  // it was chosen by; good until the next call
  };
  // The next token; the room of the model must not be used up.
  Token next();

  const DecoderCounts& counts() const { return counts_; }

 private:
  // One number of rows at once.
  struct Width {
    std::int64_t rows;
    double seconds;  // of a pass
  };
  // How often guesses of a class of trust were right.
  struct Record {
    double right, all;
  };

  void decode_one();
  void verify(Width& width, int trust);
  // The rows with which a guess pays, or null.
  Width* worth(int trust);
  void try_passes();
  void take(std::span<const float> logits);
  std::int64_t size() const { return static_cast<std::int64_t>(text_.size()); }

  LanguageModel& model_;
  TokenSampler& sampler_;
  Drafter* drafter_;
  Guessing guessing_;
  std::int64_t prompt_;
  std::vector<std::int32_t> text_;  // prompt and tokens chosen
  std::vector<Token> chosen_;       // not yet given
  std::size_t given_ = 0;           // of chosen_
  std::vector<Width> widths_;
  std::vector<Record> records_;
  double one_seconds_ = 0, draft_seconds_ = 0;  // of a token
  double lost_ = 0;                             // seconds, by guesses
  DecoderCounts counts_;
};

}  // namespace rooflane::generate
