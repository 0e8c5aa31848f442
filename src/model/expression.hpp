// Arithmetic in model files: + - * / and parentheses over numbers and symbols. Whole numbers are
// exact, and what does not come out whole or grows beyond 2^53 is refused. Files: text.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rooflane::model {

// Names with their values, in the order in which they were first set.
class Symbols {
 public:
  void set(std::string_view name, std::int64_t value);
  void erase(std::string_view name);
  std::optional<std::int64_t> find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::int64_t>>& all() const { return values_; }

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
};

// A letter or '_', then letters, digits and '_'; at most 64 of them.
bool is_symbol_name(std::string_view name);

// Throw Error(argument): a text that does not parse, an unknown symbol, a division that leaves a
// rest or by 0, a value beyond 2^53.
std::int64_t integer_of(std::string_view text, const Symbols& symbols);
// With `sqrt(...)` besides.
double real_of(std::string_view text, const Symbols& symbols);

}  // namespace rooflane::model
