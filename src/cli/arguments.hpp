// The words after a verb: declared, parsed by CLI11, asked for by name. Values stay text here; what
// they mean is read by options.hpp and the verbs. Errors are ours: one line naming the argument.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

// CLI11 is one large header: arguments.cpp alone reads it.
namespace CLI {
class App;
}

namespace rooflane {

class Arguments {
 public:
  Arguments(const std::string& verb, const std::string& summary);
  ~Arguments();

  // `names` is "--csv" or "-k,--kernel"; ask by the long name. `value` says what it takes.
  void option(const std::string& names, const std::string& value, const std::string& help);
  void repeatable(const std::string& names, const std::string& value, const std::string& help);
  void flag(const std::string& name, const std::string& help);
  void positional(const std::string& name, const std::string& help);
  void positionals(const std::string& name, const std::string& help);  // one or more
  // `--json [FILE]`; asked for by json(). A verb with positionals takes FILE as --json=FILE only:
  // in `roofline --json rows.csv` the word behind is what is read. Declared after the positionals.
  void json_output(const std::string& help);
  // Words that begin with the prefix are kept for passed().
  void pass_through(const std::string& prefix);
  // Commands that work when pasted, one after another, in an empty folder.
  void examples(const std::vector<std::string>& commands);

  enum class Outcome { run, help, version };
  // Throws Error(argument): unknown flag with the nearest valid one, missing value, a word too
  // many, an option given twice.
  Outcome parse(const std::vector<std::string>& words);
  std::string help() const;

  // What was declared, in the order of the help, which says the same.
  struct Described {
    std::vector<std::string> names;
    std::string value;  // what it takes; empty: nothing
    std::string help;
    bool is_repeatable = false;
    bool is_positional = false;
  };
  std::vector<Described> described() const;
  const std::vector<std::string>& example_commands() const { return examples_; }

  bool has(const std::string& name) const;
  std::optional<std::string> value(const std::string& name) const;
  const std::vector<std::string>& values(const std::string& name) const;
  // Every value split at commas: `-k gemm,softmax -k attention`. Throws for an empty piece.
  std::vector<std::string> list(const std::string& name) const;
  const std::vector<std::string>& passed() const { return passed_; }
  // FILE of --json; empty for standard output, nothing when not asked for.
  const std::optional<std::string>& json() const { return json_; }
  const std::vector<std::string>& words() const { return words_; }  // all of them, as given

 private:
  struct Declared {
    std::vector<std::string> values;
    bool many = false;
  };
  void declare(const std::string& names, const std::string& value, const std::string& help,
               bool many);
  void declare_positional(const std::string& name, const std::string& help, bool many);
  std::vector<std::string> without_json(const std::vector<std::string>& words);

  std::unique_ptr<CLI::App> app_;
  std::map<std::string, Declared> declared_;  // options and positionals by name
  std::map<std::string, bool> flags_;
  std::vector<std::string> valid_flags_;
  std::string prefix_;
  std::vector<std::string> passed_;
  std::vector<std::string> examples_;
  std::vector<std::string> words_;
  bool takes_json_ = false;
  bool has_positionals_ = false;
  std::optional<std::string> json_;
};

// Collects what is wrong with the arguments, so that all of them are looked at before anything
// runs: an argument that is wrong (2) is reported before one that cannot be served (3).
class Complaints {
 public:
  // Calls `step`; an Error that it throws is kept, and `otherwise` returned.
  template <class Step>
  auto check(Step&& step, decltype(step()) otherwise = {}) {
    try {
      return step();
    } catch (const Error& error) {
      add(error);
      return otherwise;
    }
  }
  void add(const Error& error);
  void raise() const;  // throws the first argument error, else the first unavailable one

 private:
  std::optional<Error> argument_;
  std::optional<Error> unavailable_;
};

}  // namespace rooflane
