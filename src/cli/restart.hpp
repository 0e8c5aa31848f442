// Restarts the program once with another environment, because libraries read some variables only
// when they are loaded.
#pragma once

#include <string>

#include "core/backend.hpp"

namespace rooflane {

bool is_restarted();
// The same arguments again, by `program`. Does not return; throws Error(unavailable).
[[noreturn]] void restart(const Variables& environment, const std::string& program);

}  // namespace rooflane
