// The models that come with the program: bench/models/*.txt, embedded.
#pragma once

#include <string>
#include <vector>

#include "model/text.hpp"

namespace rooflane::model {

std::vector<std::string> model_names();
// A model of the library, or of a file where the name holds a '/' or ends with .txt. Throws
// Error(argument).
ModelText read_model(const std::string& name_or_file);

}  // namespace rooflane::model
