// A chain as a number: its words' places counted from 1 are the digits, the first the lowest, to
// the base of how many words there are and one. See chain.hpp.
#include "chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "error.hpp"
#include "problem.hpp"
#include "text.hpp"

namespace rooflane {

// 13 words make chains of at most 13 digits to the base 14, which a double holds exactly.
std::optional<std::vector<std::size_t>> chain_places(const ParamSpec& param, double value) {
  if (!(value >= 0 && value < 0x1p53) || value != std::floor(value)) return std::nullopt;
  const auto base = static_cast<std::uint64_t>(param.words.size() + 1);
  std::vector<std::size_t> places;
  for (auto left = static_cast<std::uint64_t>(value); left > 0; left /= base) {
    const auto digit = static_cast<std::size_t>(left % base);
    if (digit == 0 || std::find(places.begin(), places.end(), digit - 1) != places.end()) {
      return std::nullopt;
    }
    places.push_back(digit - 1);
  }
  return places;
}

double parse_chain(const ParamSpec& param, std::string_view text) {
  if (text == empty_chain) return 0;
  const double base = static_cast<double>(param.words.size() + 1);
  double value = 0, unit = 1;
  std::vector<std::string_view> seen;
  for (const std::string_view word : split(text, '+')) {
    const auto found = std::find(param.words.begin(), param.words.end(), word);
    if (found == param.words.end()) {
      std::vector<std::string> words(param.words.begin(), param.words.end());
      words.emplace_back(empty_chain);
      throw argument_error(
          fmt::format("{}={}: {}", param.name, text, unknown_name("word of it", word, words)));
    }
    if (std::find(seen.begin(), seen.end(), word) != seen.end()) {
      throw argument_error(
          fmt::format("{}={}: {} occurs twice, each may once", param.name, text, word));
    }
    seen.push_back(word);
    value += unit * static_cast<double>(found - param.words.begin() + 1);
    unit *= base;
  }
  return value;
}

std::string print_chain(const ParamSpec& param, double value) {
  const std::vector<std::size_t> places = chain_places(param, value).value();
  std::vector<std::string> words;
  for (const std::size_t place : places) words.emplace_back(param.words[place]);
  return words.empty() ? std::string(empty_chain) : join(words, "+");
}

}  // namespace rooflane
