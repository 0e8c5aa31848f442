// Lines to statements. See text.hpp.
#include "model/text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::model {
namespace {

// Models of hundreds of layers are loops: the longest file that we ship has 5 KiB.
constexpr std::size_t longest_file = std::size_t{1} << 20;
constexpr std::size_t deepest_loop = 8;

const std::vector<std::string> keywords = {"model", "symbol", "size",   "phase", "input",  "weight",
                                           "state", "buffer", "output", "step",  "repeat", "end"};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Adds the words of a line; true when it ends with a backslash and goes on in the next.
bool add_words(std::string_view line, std::vector<std::string>& words) {
  std::string open;  // brackets that wait for their end
  std::string word;
  const auto close = [&](char bracket, char c) {
    if (open.empty() || open.back() != bracket) {
      throw argument_error(fmt::format("'{}' closes nothing", c));
    }
    open.pop_back();
  };
  bool goes_on = false;
  for (const char c : line) {
    if (c == '#') break;
    goes_on = c == '\\' || (goes_on && is_blank(c));
    if (c == '\\') continue;
    if (is_blank(c) && open.empty()) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
      continue;
    }
    if (c == '[' || c == '(') open += c;
    if (c == ']') close('[', c);
    if (c == ')') close('(', c);
    if (!is_blank(c)) word += c;
  }
  if (!open.empty()) throw argument_error(fmt::format("'{}' is not closed", open.back()));
  if (!word.empty()) words.push_back(std::move(word));
  return goes_on;
}

class Reader {
 public:
  explicit Reader(const std::string& file) { text_.file = file; }

  void read(std::string_view text) {
    if (text.size() > longest_file) {
      throw argument_error(fmt::format("{}: a model file has at most {} bytes, this one {}",
                                       text_.file, longest_file, text.size()));
    }
    std::vector<std::string> words;
    int first = 0, number = 0;
    for (const std::string_view line : split(text, '\n')) {
      ++number;
      if (words.empty()) first = number;
      try {
        if (add_words(line, words) || words.empty()) continue;
        take(first, words);
      } catch (const Error& error) {
        fail_at(text_.file, number, error.what());
      }
      words.clear();
    }
    if (!words.empty()) fail_at(text_.file, first, "the last line ends with a backslash");
    if (!loops_.empty()) fail_at(text_.file, loops_.back().line, "repeat without its end");
    if (text_.name.empty()) {
      throw argument_error(text_.file + ": no model: the first statement must be `model NAME`");
    }
  }

  ModelText take_text() { return std::move(text_); }

 private:
  void take(int line, const std::vector<std::string>& words) {
    Statement statement{line, words.front(), {words.begin() + 1, words.end()}, {}};
    if (std::find(keywords.begin(), keywords.end(), statement.keyword) == keywords.end()) {
      throw argument_error(unknown_name("statement", statement.keyword, keywords));
    }
    if (text_.name.empty() != (statement.keyword == "model")) {
      throw argument_error(text_.name.empty() ? "the first statement must be `model NAME`"
                                              : "a second `model`");
    }
    if (statement.keyword == "model") {
      if (statement.words.size() != 1) throw argument_error("write `model NAME`");
      text_.name = statement.words.front();
    } else if (statement.keyword == "repeat") {
      if (loops_.size() == deepest_loop) {
        throw argument_error(fmt::format("loops within {} loops", deepest_loop));
      }
      loops_.push_back(std::move(statement));
    } else if (statement.keyword == "end") {
      if (!statement.words.empty() || loops_.empty()) {
        throw argument_error(loops_.empty() ? "end without a repeat" : "write `end` alone");
      }
      statement = std::move(loops_.back());
      loops_.pop_back();
      add(std::move(statement));
    } else {
      add(std::move(statement));
    }
  }

  void add(Statement&& statement) {
    (loops_.empty() ? text_.statements : loops_.back().body).push_back(std::move(statement));
  }

  ModelText text_;
  std::vector<Statement> loops_;
};

}  // namespace

ModelText read_model_text(std::string_view text, const std::string& file) {
  Reader reader(file);
  reader.read(text);
  return reader.take_text();
}

void fail_at(const std::string& file, int line, const std::string& message) {
  throw argument_error(fmt::format("{}: line {}: {}", file, line, message));
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  int depth = 0;
  parts.emplace_back();
  for (const char c : text) {
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else if (!is_blank(c)) {
      parts.back() += c;
    }
  }
  return parts;
}

std::pair<std::string, std::string> key_and_value(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
    throw argument_error(fmt::format("'{}' does not parse: write key=value", word));
  }
  return {word.substr(0, equals), word.substr(equals + 1)};
}

}  // namespace rooflane::model
