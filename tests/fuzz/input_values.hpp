// A fuzzer's input as numbers and words, one taken after the other; beyond its end zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rooflane::fuzz {

class InputValues {
 public:
  explicit InputValues(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    const std::string_view one = take(1);
    return one.empty() ? 0 : static_cast<std::uint8_t>(one[0]);
  }
  // A small one, or all of its eight bytes.
  std::int64_t integer() {
    const std::uint8_t kind = byte();
    if (kind < 0xF0) return static_cast<std::int64_t>(kind) - 16;
    std::int64_t value = 0;
    const std::string_view bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // Up to a NUL.
  std::string word() {
    const std::string_view text = take(std::min(rest_.find('\0'), rest_.size()));
    take(1);
    return std::string(text);
  }

 private:
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

}  // namespace rooflane::fuzz
