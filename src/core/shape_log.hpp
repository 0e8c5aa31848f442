// What a program asks the library for: with ROOFLANE_SHAPES=FILE every problem that plan_by_name
// (the C interface, Python) is asked to plan becomes a line of that file, once. `rooflane tune
// --preset FILE` takes it.
#pragma once

#include "core/problem.hpp"

namespace rooflane {

// Nothing where the variable is not set or empty. Thread-safe; several processes may share a file.
// Throws Error(argument) when the file cannot be written.
void log_shape(const Problem& problem);

}  // namespace rooflane
