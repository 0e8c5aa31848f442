// Starts the program over, once, with another environment: what libraries read when they are
// loaded cannot be changed later.
#pragma once

#include <string>

#include "core/backend.hpp"

namespace rooflane {

bool is_restarted();
// The same arguments again, by `program`. Does not return; throws Error(unavailable).
[[noreturn]] void restart(const Variables& environment, const std::string& program);

}  // namespace rooflane
