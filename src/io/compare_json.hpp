// A comparison as JSON: what `compare --json` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "io/compare.hpp"

namespace rooflane {

// `before` and `after` name the sides: files, or V@NAME and V.
nlohmann::ordered_json comparison_json(const Comparison& comparison, const std::string& before,
                                       const std::string& after);

}  // namespace rooflane
