// A source for each kernel that `rooflane judge` finds right: plain loops, to start from.
#pragma once

#include <string>

#include "core/kernel.hpp"

namespace rooflane::judge {

std::string template_of(const Kernel& kernel);

}  // namespace rooflane::judge
