// Ceilings as JSON, for `rooflane ceilings --json` and the context of results. Field names are
// those of ceilings.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "measure/ceilings.hpp"

namespace rooflane {

// Found by nlohmann::json through argument-dependent lookup: `json j = ceilings`.
void to_json(nlohmann::json& j, const Ceilings& ceilings);

// `j.get<Ceilings>()`. Throws nlohmann::json::exception, which names the field, when one is missing
// or of another type.
void from_json(const nlohmann::json& j, Ceilings& ceilings);

}  // namespace rooflane
