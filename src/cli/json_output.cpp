// Where JSON goes. See json_output.hpp.
#include "cli/json_output.hpp"

#include <iostream>

#include "io/files.hpp"
#include "io/json.hpp"

namespace rooflane {

JsonOutput::JsonOutput(const Arguments& arguments) : asked_(arguments.json().has_value()) {
  file_ = arguments.json().value_or("");
  if (file_.empty()) return;
  try {
    require_writable(file_);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("--json: ") + error.what());
  }
}

void JsonOutput::write(const nlohmann::ordered_json& document) const {
  if (file_.empty()) {
    std::cout << json_text(document);
  } else {
    write_json(file_, document);
  }
}

}  // namespace rooflane
