// AMX, the tile registers of Intel's servers since Sapphire Rapids: whether this CPU has them and
// the system lets this process use them.
#pragma once

#include "core/backend.hpp"

namespace rooflane::amx {

extern const Backend backend;

}  // namespace rooflane::amx
