// Plain loops, auto-vectorisation off: nothing is shared but the record.
#pragma once

#include "core/backend.hpp"

namespace rooflane::scalar {

extern const Backend backend;

}  // namespace rooflane::scalar
