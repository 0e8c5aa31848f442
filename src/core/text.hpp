// Numbers and names as text: strict parsing, shortest round-trip printing, the nearest valid name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rooflane {

std::vector<std::string_view> split(std::string_view text, char separator);

// The whole text must be a number ("12x", "" and " 12" are none). Integers are decimal.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

// The shortest text that reads back as the same double: 1, 0.1, 1e-05.
std::string print_real(double value);

// "48 KiB", "1.5 GiB": four digits at most.
std::string print_bytes(std::size_t bytes);
std::string print_bytes(std::int64_t bytes);

// The candidate with the least edit distance to `name`; empty when there is no candidate.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// "unknown WHAT 'NAME'; nearest is 'X'; valid: X, Y, Z".
std::string unknown_name(std::string_view what, std::string_view name,
                         const std::vector<std::string>& candidates);

// "SIGSEGV", or "signal 34" for one without a name.
std::string signal_name(int signal);

std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace rooflane
