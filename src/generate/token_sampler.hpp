// Which token comes next, from the logits of all: the likeliest, or one drawn at random.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rooflane::generate {

struct SamplerSettings {
  double temperature = 0;  // logits are divided by it; 0: always the likeliest token
  double top_p = 1;        // only the likeliest tokens that together have this probability
  std::uint64_t seed = 1;
};

// Nucleus sampling (Holtzman et al., arXiv 1904.09751) after temperature, in double precision. The
// draw for the i-th token depends on seed, i and logits alone.
class TokenSampler {
 public:
  TokenSampler(const SamplerSettings& settings, std::int64_t vocabulary);

  // Token `number`, from 0. `logits`: as many as the vocabulary has. Among equals the first counts
  // as likelier; NaN is taken only if nothing else is there.
  std::int32_t choose(std::span<const float> logits, std::uint64_t number);

 private:
  std::int32_t draw(std::span<const float> logits, float largest, std::uint64_t number);

  SamplerSettings settings_;
  std::vector<std::pair<double, std::int32_t>> weights_;  // of tokens, not yet normalised
};

}  // namespace rooflane::generate
