// See json_text.hpp.
#include "core/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rooflane {
namespace {

// Brackets that are open at once, at most; those in texts are none.
int nesting(std::string_view text) {
  int open = 0, most = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++open);
    } else if (c == ']' || c == '}') {
      --open;
    }
  }
  return most;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  if (nesting(text) > most_nesting) {
    throw nlohmann::json::other_error::create(
        501, fmt::format("nested deeper than {}", most_nesting), nullptr);
  }
  return nlohmann::json::parse(text);
}

std::optional<std::int64_t> whole_number(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return std::in_range<std::int64_t>(number) ? std::optional<std::int64_t>(number) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto real = value.get<double>();
  constexpr double exact = 0x1p53;
  if (!(std::abs(real) <= exact) || real != std::floor(real)) return std::nullopt;
  return static_cast<std::int64_t>(real);
}

}  // namespace rooflane
