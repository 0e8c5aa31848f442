// What the entries of a kernel's tables are called in JSON and from Python.
#pragma once

#include "kernel.hpp"
#include "problem.hpp"

namespace rooflane {

const char* name_of(ParamKind kind);
const char* name_of(Role role);

}  // namespace rooflane
