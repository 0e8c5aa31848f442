// A model file as text: statements of words, loops as statements within a statement. instance.hpp
// gives the words their meaning; docs/models.md describes the language.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rooflane::model {

struct Statement {
  int line = 0;
  std::string keyword;             // "step"
  std::vector<std::string> words;  // what follows; blanks only within brackets
  std::vector<Statement> body;     // of `repeat`
};

struct ModelText {
  std::string file;  // as messages name it
  std::string name;  // of the statement `model`
  std::vector<Statement> statements;
};

// Throws Error(argument), "FILE: line N: ...": an invalid statement, brackets that do not close, a
// loop without its end, too long a file.
ModelText read_model_text(std::string_view text, const std::string& file);

// The same for an error that `step` throws.
[[noreturn]] void fail_at(const std::string& file, int line, const std::string& message);

// The parts between commas outside of brackets, without blanks; an empty text has none.
std::vector<std::string> split_list(std::string_view text);
// `key=value`; the value may hold further '='. Throws Error(argument).
std::pair<std::string, std::string> key_and_value(const std::string& word);

}  // namespace rooflane::model
