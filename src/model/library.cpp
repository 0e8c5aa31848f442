// Embedded models. See library.hpp.
#include "model/library.hpp"

#include "core/error.hpp"
#include "core/text.hpp"
#include "generated_models.hpp"
#include "io/files.hpp"

namespace rooflane::model {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const EmbeddedModel& model : embedded_models) names.emplace_back(model.name);
  return names;
}

ModelText read_model(const std::string& name) {
  for (const EmbeddedModel& model : embedded_models) {
    if (name != model.name) continue;
    // Embedding put a line in front, which names the file.
    const std::string_view text = model.text;
    return read_model_text(text.substr(text.find('\n') + 1), name + ".txt");
  }
  if (name.find('/') != std::string::npos || name.ends_with(".txt")) {
    return read_model_text(read_text_file(name), name);
  }
  throw argument_error(unknown_name("model", name, model_names()) + "; or a file: NAME.txt");
}

}  // namespace rooflane::model
