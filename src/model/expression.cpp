// Expressions by recursive descent, evaluated as they are read. See expression.hpp.
#include "model/expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <type_traits>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::model {

void Symbols::set(std::string_view name, std::int64_t value) {
  for (auto& [known, held] : values_) {
    if (known != name) continue;
    held = value;
    return;
  }
  values_.emplace_back(name, value);
}

void Symbols::erase(std::string_view name) {
  std::erase_if(values_, [&](const auto& symbol) { return symbol.first == name; });
}

std::optional<std::int64_t> Symbols::find(std::string_view name) const {
  for (const auto& [known, value] : values_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

bool is_symbol_name(std::string_view name) {
  constexpr std::size_t longest = 64;
  return !name.empty() && name.size() <= longest && starts_name(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return starts_name(c) || is_digit(c); });
}

namespace {

// Whole numbers are those that a double holds exactly, as parameters of problems do.
constexpr std::int64_t largest = std::int64_t{1} << 53;
// Parentheses and signs within one another: nobody writes more, and the stack has room for them.
constexpr int deepest = 64;

std::int64_t checked(bool overflowed, std::int64_t value) {
  if (overflowed || value > largest || value < -largest) {
    throw argument_error("a value goes beyond 2^53");
  }
  return value;
}

std::int64_t add(std::int64_t x, std::int64_t y) {
  std::int64_t z = 0;
  const bool overflowed = __builtin_add_overflow(x, y, &z);
  return checked(overflowed, z);
}
std::int64_t multiply(std::int64_t x, std::int64_t y) {
  std::int64_t z = 0;
  const bool overflowed = __builtin_mul_overflow(x, y, &z);
  return checked(overflowed, z);
}
std::int64_t divide(std::int64_t x, std::int64_t y) {
  if (y == 0) throw argument_error(fmt::format("{} is divided by 0", x));
  if (x % y != 0) throw argument_error(fmt::format("{} / {} is no whole number", x, y));
  return x / y;
}
double add(double x, double y) { return x + y; }
double multiply(double x, double y) { return x * y; }
double divide(double x, double y) {
  if (y == 0) throw argument_error(fmt::format("{} is divided by 0", x));
  return x / y;
}

template <class Number>
class Parser {
 public:
  Parser(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  Number all() {
    const Number value = sum();
    if (peek() != '\0' || at_ < text_.size()) {
      throw argument_error(fmt::format("'{}' is no operator", text_[at_]));
    }
    return value;
  }

 private:
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Number sum() {
    Number value = product();
    for (char op = peek(); op == '+' || op == '-'; op = peek()) {
      ++at_;
      const Number next = product();
      value = add(value, op == '+' ? next : -next);
    }
    return value;
  }

  Number product() {
    Number value = factor();
    for (char op = peek(); op == '*' || op == '/'; op = peek()) {
      ++at_;
      const Number next = factor();
      value = op == '*' ? multiply(value, next) : divide(value, next);
    }
    return value;
  }

  Number factor() {
    if (++depth_ > deepest) throw argument_error("too many parentheses or signs");
    const Number value = factor_within();
    --depth_;
    return value;
  }

  Number factor_within() {
    const char c = peek();
    if (c == '-') {
      ++at_;
      return -factor();
    }
    if (c == '(') {
      ++at_;
      const Number value = sum();
      if (peek() != ')') throw argument_error("')' is missing");
      ++at_;
      return value;
    }
    if (is_digit(c) || c == '.') return number();
    if (starts_name(c)) return symbol();
    throw argument_error(c == '\0' ? std::string("a number or a symbol is missing")
                                   : fmt::format("'{}' begins no number and no symbol", c));
  }

  // Digits, a fraction, an exponent: any other text is refused as a whole.
  Number number() {
    std::size_t end = at_;
    while (end < text_.size()) {
      const char c = text_[end];
      const bool exponent = end > at_ && (c == 'e' || c == 'E');
      if (!is_digit(c) && c != '.' && !exponent) break;
      ++end;
      if (exponent && end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
    }
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    if constexpr (std::is_same_v<Number, double>) {
      const auto value = parse_real(word);
      if (value && std::isfinite(*value)) return *value;
      throw argument_error(fmt::format("'{}' is no finite number", word));
    } else {
      const auto value = parse_integer(word);
      if (value) return checked(false, *value);
      throw argument_error(fmt::format("'{}' is no whole number below 2^53", word));
    }
  }

  Number symbol() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (starts_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if constexpr (std::is_same_v<Number, double>) {
      if (name == "sqrt" && peek() == '(') return std::sqrt(factor());
    }
    if (const auto value = symbols_.find(name)) return static_cast<Number>(*value);
    std::vector<std::string> names;
    for (const auto& [known, value] : symbols_.all()) names.push_back(known);
    throw argument_error(names.empty() ? fmt::format("unknown symbol '{}'; there is none", name)
                                       : unknown_name("symbol", name, names));
  }

  std::string_view text_;
  const Symbols& symbols_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

template <class Number>
Number evaluate(std::string_view text, const Symbols& symbols) {
  try {
    return Parser<Number>(text, symbols).all();
  } catch (const Error& error) {
    throw argument_error(fmt::format("'{}': {}", text, error.what()));
  }
}

}  // namespace

std::int64_t integer_of(std::string_view text, const Symbols& symbols) {
  return evaluate<std::int64_t>(text, symbols);
}

double real_of(std::string_view text, const Symbols& symbols) {
  return evaluate<double>(text, symbols);
}

}  // namespace rooflane::model
