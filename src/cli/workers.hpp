// Variants from outside this build: --plugin, --against and --peers.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cli/options.hpp"

namespace rooflane {

void declare_plugins(Arguments& arguments);  // --plugin alone
void declare_peers(Arguments& arguments);    // --peers alone
void declare_workers(Arguments& arguments);  // --plugin, --against and --peers

// A plugin as --plugin names it.
struct PluginArgument {
  std::string name, path;
};
// Reads --plugin. Throws Error(argument) for text that does not parse, a name that the catalogue
// has, or a file that cannot be read.
std::vector<PluginArgument> read_plugins(const Arguments& arguments, const Catalogue& catalogue);

// For a verb that computes in this process: each plugin is tried in a worker of its own, so that
// one that crashes when it is loaded is a wrong argument, then loaded here.
void load_plugins(const Arguments& arguments, const CommonOptions& common,
                  const CliSettings& settings, Catalogue& catalogue, Complaints& complaints);

// Starts each worker once and adds its variants to the catalogue. Returns the names of plugins and
// peers: they take part whatever -v says, because the user named them, and are reported if missing.
// If a peer's worker does not start, the peer is an absent variant with the reason. Errors go to
// `complaints`; they are raised before peers are prepared, which may take minutes.
std::vector<std::string> add_workers(const Arguments& arguments, const CommonOptions& common,
                                     const CliSettings& settings, Catalogue& catalogue,
                                     Complaints& complaints);

// The same for --peers alone. Throws Error.
std::vector<std::string> add_named_peers(const Arguments& arguments,
                                         std::chrono::duration<double> timeout,
                                         Catalogue& catalogue);

}  // namespace rooflane
