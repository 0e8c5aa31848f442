// Foreign variants: variants in worker processes that are not this build (other builds, plugins,
// Python peers). They are found by starting the worker once and reading its greeting;
// process_worker.hpp runs them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "measure/worker.hpp"

namespace rooflane {

struct ForeignWorker {
  std::vector<std::string> command;  // an executable file and its arguments
  std::vector<std::string> option;   // the argument that names it: {"--against", "old=PATH"}
  // Under which name an offer is listed; empty: not at all.
  std::function<std::string(const Offer&)> name;
  // The variant that is absent from all kernels when the worker does not greet as it should, or
  // greets with an error; empty: that is a wrong argument.
  std::string fallback = {};
};

// Starts the worker and adds what it offers for the catalogue's kernels: a foreign entry each, or
// an absent variant with its reason. Returns the names of both, each once. Throws Error(argument)
// that begins with the option unless there is a fallback: the command cannot be executed, does not
// greet within `timeout`, greets in another protocol or with an error, or is too old to say what it
// runs.
std::vector<std::string> add_foreign(Catalogue& catalogue, const ForeignWorker& worker,
                                     std::chrono::duration<double> timeout);

}  // namespace rooflane
