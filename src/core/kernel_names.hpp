// The names of the entries of a kernel's tables in JSON and in Python.
#pragma once

#include "kernel.hpp"
#include "problem.hpp"

namespace rooflane {

const char* name_of(ParamKind kind);
const char* name_of(Role role);

}  // namespace rooflane
