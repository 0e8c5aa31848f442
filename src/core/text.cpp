// Numbers and names as text. See text.hpp.
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

namespace rooflane {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string print_real(double value) {
  std::array<char, 32> digits{};  // the longest shortest double has 24 characters
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string print_bytes(std::size_t bytes) {
  const auto count = static_cast<double>(bytes);
  if (count >= 0x1p30) return fmt::format("{:.4g} GiB", count / 0x1p30);
  if (count >= 0x1p20) return fmt::format("{:.4g} MiB", count / 0x1p20);
  return fmt::format("{:.4g} KiB", count / 0x1p10);
}
std::string print_bytes(std::int64_t bytes) { return print_bytes(static_cast<std::size_t>(bytes)); }

namespace {

// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view x, std::string_view y) {
  std::vector<std::size_t> row(y.size() + 1);
  for (std::size_t j = 0; j <= y.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= x.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= y.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (x[i - 1] == y[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[y.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string unknown_name(std::string_view what, std::string_view name,
                         const std::vector<std::string>& candidates) {
  std::string message = "unknown " + std::string(what) + " '" + std::string(name) + "'";
  if (candidates.empty()) return message + "; there are none";
  return message + "; nearest is '" + nearest_name(name, candidates) +
         "'; valid: " + join(candidates, ", ");
}

std::string signal_name(int signal) {
  const char* const abbreviation = sigabbrev_np(signal);
  return abbreviation != nullptr ? fmt::format("SIG{}", abbreviation)
                                 : fmt::format("signal {}", signal);
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

}  // namespace rooflane
