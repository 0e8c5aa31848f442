// Users' own variants: shared libraries that export what rooflane/variant.h says. Loaded in worker
// processes, and by `run`; who benchmarks them is never the process that they are loaded in.
#pragma once

#include <string>
#include <vector>

#include "backends/plugin_table.hpp"
#include "core/catalogue.hpp"

namespace rooflane::plugin {

extern const Backend backend;

// Opens the library at `path` and adds its variants to the catalogue: called `name`, or `name-x`
// for one that calls itself x. It is never closed. Throws Error(argument): no
// shared library, not of this ABI, an incomplete or unknown variant, a name that is taken.
void load(Catalogue& catalogue, const std::string& name, const std::string& path);

// For a table with functions that let another process do the work: what its plan adds (Plan's
// functions of these names, and facts).
struct Elsewhere {
  // Several runs behind one another: the other process is told once. What it returns is run's.
  std::int32_t (*run_often)(void* plan, std::int64_t runs);
  // Names of the outputs, before bind.
  void (*will_write)(void* plan, const std::vector<std::string>& names);
  void (*wake)(void* plan);
  void (*rest)(void* plan);
  double (*call_ns)(void* plan);
  double (*call_spread_ns)(void* plan);
  std::string (*library)(void* plan);
};
// The same for a table that is there already.
void load_table(Catalogue& catalogue, const std::string& name, const rooflane_plugin* described,
                const Elsewhere* elsewhere);

}  // namespace rooflane::plugin
