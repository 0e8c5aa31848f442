// `--json [FILE]` of the verbs that print data: writes JSON to FILE and prints the text, or,
// without FILE, prints JSON instead of the text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/arguments.hpp"

namespace rooflane {

class JsonOutput {
 public:
  // What the arguments ask for. Throws Error(argument) when FILE cannot be written.
  explicit JsonOutput(const Arguments& arguments);

  bool asked() const { return asked_; }
  bool replaces_text() const { return asked_ && file_.empty(); }
  void write(const nlohmann::ordered_json& document) const;

 private:
  bool asked_ = false;
  std::string file_;
};

}  // namespace rooflane
