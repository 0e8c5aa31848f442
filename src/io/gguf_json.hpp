// The content of a GGUF file as JSON: metadata by key, and each tensor's name, shape and type.
#pragma once

#include <nlohmann/json.hpp>

#include "io/gguf.hpp"

namespace rooflane {

// {"version":3,"metadata":{key:value...},"tensors":[{"name":...,"shape":[...],"type":"q8_0"}]}.
// NaN and infinities become null.
nlohmann::json gguf_json(const Gguf& gguf);

}  // namespace rooflane
