// JSON from files or other processes, as a document.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace rooflane {

// Deeper than any document of ours by far.
inline constexpr int most_nesting = 64;

// Throws nlohmann::json::exception: no JSON, or nested deeper than most_nesting. Parsing itself
// takes any depth, but the library copies and prints a value by calling itself, so that a line of
// many brackets would end the process.
nlohmann::json parse_json(std::string_view text);

// Nothing where it is none, or one that no 64-bit integer holds.
std::optional<std::int64_t> whole_number(const nlohmann::json& value);

// A whole number that fits into the type, written as 3 or 3.0; else throws
// nlohmann::json::exception. The library's own conversion of a number that does not fit is
// undefined.
template <class Integer>
Integer integer_from(const nlohmann::json& value) {
  const std::optional<std::int64_t> number = whole_number(value);
  if (!number || !std::in_range<Integer>(*number)) {
    throw nlohmann::json::other_error::create(501, "a whole number expected", nullptr);
  }
  return static_cast<Integer>(*number);
}

}  // namespace rooflane
