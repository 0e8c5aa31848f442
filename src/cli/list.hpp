// What `rooflane list --json` prints; `rooflane evaluate` answers with it too.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/catalogue.hpp"

namespace rooflane {

// The problems of every shape and preset, ranges expanded. Throws Error(argument).
std::vector<Problem> listed_problems(const std::vector<std::string>& shapes,
                                     const std::vector<std::string>& presets,
                                     const Catalogue& catalogue);
// These kernels with all their variants, and the problems with tensors and costs.
nlohmann::ordered_json list_document(const Catalogue& catalogue,
                                     std::span<const Kernel* const> kernels,
                                     const std::vector<Problem>& problems);

}  // namespace rooflane
