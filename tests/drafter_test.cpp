// Guesses from the text so far, and how often tokens are drawn.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "generate/drafter.hpp"
#include "generate/token_sampler.hpp"

namespace rooflane::generate {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Guess {
  int trust;
  Tokens tokens;
};
Guess guess_behind(const Tokens& text, std::int64_t count) {
  NgramDrafter drafter;
  const int trust = drafter.trust(text);
  if (trust == 0) return {0, {}};
  const auto draft = drafter.draft(text, count);
  return {trust, Tokens(draft.begin(), draft.end())};
}

TEST_CASE("what followed the longest agreeing end of the text is guessed") {
  const Guess guess = guess_behind({1, 2, 3, 4, 9, 3, 8, 7, 1, 2, 3}, 3);
  CHECK(guess.trust == 3);  // 1 2 3, although 3 was followed by 8 later
  CHECK(guess.tokens == Tokens{4, 9, 3});
}

TEST_CASE("of equally long ones the latest counts") {
  const Guess guess = guess_behind({5, 1, 6, 5, 2, 7, 5}, 1);
  CHECK(guess.trust == 1);
  CHECK(guess.tokens == Tokens{2});
}

TEST_CASE("beyond its end the text repeats itself") {
  const Guess guess = guess_behind({4, 1, 2, 1, 2}, 5);
  CHECK(guess.trust == 2);
  CHECK(guess.tokens == Tokens{1, 2, 1, 2, 1});
}

TEST_CASE("a token that is new leaves nothing to guess") {
  CHECK(guess_behind({1, 2, 3, 4}, 2).trust == 0);
  CHECK(guess_behind({1}, 2).trust == 0);
}

TEST_CASE("trust ends at the last class") {
  CHECK(guess_behind(Tokens(30, 6), 2).trust == Drafter::trusts - 1);
}

TEST_CASE("tokens are drawn as often as they are likely") {
  const std::vector<float> logits = {1.0F, -0.5F, 2.0F, 0.25F, 1.5F, -3.0F};
  constexpr double temperature = 0.8;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit / temperature);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    TokenSampler sampler({temperature, 1, seed}, std::ssize(logits));
    constexpr int draws = 40'000;
    std::vector<double> counts(logits.size());
    for (int i = 0; i < draws; ++i) {
      ++counts[static_cast<std::size_t>(sampler.choose(logits, static_cast<std::uint64_t>(i)))];
    }
    for (std::size_t token = 0; token < logits.size(); ++token) {
      const double likely = std::exp(logits[token] / temperature) / sum;
      const double deviation = std::sqrt(draws * likely * (1 - likely));
      CHECK(std::abs(counts[token] - draws * likely) < 5 * deviation);
    }
  }
}

}  // namespace
}  // namespace rooflane::generate
