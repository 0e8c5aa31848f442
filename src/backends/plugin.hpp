// Users' own variants: shared libraries that export what rooflane/variant.h says. Loaded in worker
// processes, and by `run`; who benchmarks them is never the process that they are loaded in.
#pragma once

#include <string>
#include <vector>

#include "core/catalogue.hpp"

namespace rooflane::plugin {

extern const Backend backend;

// Opens the library at `path` and adds its variants to the catalogue: called `name`, or `name-x`
// for one that calls itself x. It is never closed. Throws Error(argument): no
// shared library, not of this ABI, an incomplete or unknown variant, a name that is taken.
void load(Catalogue& catalogue, const std::string& name, const std::string& path);

}  // namespace rooflane::plugin
