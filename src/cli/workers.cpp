// From --plugin, --against and --peers to entries of the catalogue. See workers.hpp.
#include "cli/workers.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "backends/plugin.hpp"
#include "cli/peers.hpp"
#include "core/text.hpp"
#include "measure/foreign.hpp"

namespace rooflane {
namespace {

// Importing a Python package may take half of this on a busy machine.
constexpr double greeting_seconds = 60;

std::chrono::duration<double> greeting_timeout(const CommonOptions& common) {
  return std::chrono::duration<double>(common.timeout.value_or(greeting_seconds));
}

// "NAME=PATH" with NAME of [a-z0-9-]; the path made absolute, since workers are told it.
PluginArgument parse_named_path(const std::string& option, const std::string& value) {
  const std::size_t equals = value.find('=');
  const std::string name = value.substr(0, equals);
  if (equals == std::string::npos || !is_plain_name(name) || equals + 1 == value.size()) {
    throw argument_error(fmt::format(
        "{} '{}' does not parse: write NAME=PATH, NAME of a-z, 0-9 and -", option, value));
  }
  const std::string path = value.substr(equals + 1);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || ::access(path.c_str(), R_OK) != 0) {
    throw argument_error(fmt::format("{} {}: '{}' is not a readable file", option, name, path));
  }
  return {name, std::filesystem::absolute(path, ignored)};
}

void require_new(const std::vector<std::string>& names, const std::string& option,
                 const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) return;
  throw argument_error(fmt::format("{} '{}': a variant of that name exists; existing names: {}",
                                   option, name, join(names, ", ")));
}

void add_plugins(const std::vector<PluginArgument>& plugins, std::chrono::duration<double> timeout,
                 const CliSettings& settings, Catalogue& catalogue,
                 std::vector<std::string>& guests) {
  for (const PluginArgument& plugin : plugins) {
    const std::string text = plugin.name + "=" + plugin.path;
    ForeignWorker worker;
    worker.command = settings.worker_command;
    worker.command.insert(worker.command.end(), {"--plugin", text});
    worker.option = {"--plugin", text};
    worker.name = [](const Offer& offer) {
      return offer.backend == plugin::backend.name ? offer.variant : std::string();
    };
    for (std::string& name : add_foreign(catalogue, worker, timeout)) {
      guests.push_back(std::move(name));
    }
  }
}

// LD_LIBRARY_PATH takes precedence over the path that is stored in a program. With it another build
// may load this build's library, and this build's kernels would be timed under its name.
void require_own_library(const PluginArgument& build) {
  const auto library_in = [](const std::filesystem::path& folder) {
    return folder / "librooflane.so.0";
  };
  const std::filesystem::path own = library_in(std::filesystem::path(build.path).parent_path());
  const char* const folders = std::getenv("LD_LIBRARY_PATH");
  std::error_code ignored;
  if (folders == nullptr || !std::filesystem::exists(own, ignored)) return;
  for (const std::string_view folder : split(folders, ':')) {
    const std::filesystem::path loaded = library_in(folder);
    if (folder.empty() || !std::filesystem::exists(loaded, ignored)) continue;
    if (std::filesystem::equivalent(loaded, own, ignored)) return;
    throw argument_error(fmt::format(
        "--against {}: LD_LIBRARY_PATH makes it load '{}' instead of '{}'; unset LD_LIBRARY_PATH",
        build.name, loaded.string(), own.string()));
  }
}

void add_builds(const Arguments& arguments, std::chrono::duration<double> timeout,
                Catalogue& catalogue) {
  std::vector<std::string> seen;
  for (const std::string& value : arguments.values("--against")) {
    const PluginArgument build = parse_named_path("--against", value);
    require_new(seen, "--against", build.name);
    seen.push_back(build.name);
    if (::access(build.path.c_str(), X_OK) != 0) {
      throw argument_error(
          fmt::format("--against {}: '{}' cannot be executed", build.name, build.path));
    }
    require_own_library(build);
    ForeignWorker worker;
    worker.command = {build.path, "worker"};
    worker.option = {"--against", build.name + "=" + build.path};
    worker.name = [&](const Offer& offer) { return offer.variant + "@" + build.name; };
    add_foreign(catalogue, worker, timeout);
  }
}

std::vector<std::string> chosen_peers(const Arguments& arguments, const PeersScript& script) {
  std::vector<std::string> chosen;
  for (const std::string& name : arguments.list("--peers")) {
    const auto& all = script.names();
    if (name == "all") {
      chosen = all;
    } else if (std::find(all.begin(), all.end(), name) == all.end()) {
      std::vector<std::string> valid = all;
      valid.emplace_back("all");
      throw argument_error("--peers: " + unknown_name("peer", name, valid));
    } else if (std::find(chosen.begin(), chosen.end(), name) == chosen.end()) {
      chosen.push_back(name);
    }
  }
  return chosen;
}

// A library replaces `blas` under its own name, as with --blas NAME=PATH.
void add_library(const PeersScript& script, const std::string& name, Catalogue& catalogue) {
  try {
    apply_blas({name + "=" + script.library(name)}, catalogue);
  } catch (const Error& error) {
    for (const Kernel* kernel : catalogue.kernels()) {
      catalogue.add(AbsentVariant{kernel->name, "blas-" + name, error.what()});
    }
  }
}

void add_peers(const PeersScript& script, const std::vector<std::string>& peers,
               std::chrono::duration<double> timeout, Catalogue& catalogue,
               std::vector<std::string>& guests) {
  script.prepare(peers);
  for (const std::string& peer : peers) {
    if (PeersScript::is_library(peer)) {
      add_library(script, peer, catalogue);
      guests.push_back("blas-" + peer);
      continue;
    }
    ForeignWorker worker;
    worker.command = script.worker_command(peer);
    worker.option = {"--peers", peer};
    worker.fallback = peer;
    const std::vector<std::string> taken = catalogue.variant_names();
    worker.name = [&](const Offer& offer) {
      require_new(taken, "--peers " + peer, offer.variant);
      return offer.variant;
    };
    for (std::string& name : add_foreign(catalogue, worker, timeout)) {
      guests.push_back(std::move(name));
    }
  }
}

}  // namespace

void declare_plugins(Arguments& arguments) {
  arguments.repeatable("--plugin", "NAME=FILE",
                       "your own variant: a shared library that uses rooflane/variant.h");
}

void declare_peers(Arguments& arguments) {
  arguments.repeatable("--peers", "NAME,...",
                       "third-party libraries: numpy, torch, ...; or all (scripts/peers.py)");
}

void declare_workers(Arguments& arguments) {
  declare_plugins(arguments);
  arguments.repeatable("--against", "NAME=PATH",
                       "the program of another build; adds its variants as VARIANT@NAME");
  declare_peers(arguments);
}

std::vector<PluginArgument> read_plugins(const Arguments& arguments, const Catalogue& catalogue) {
  std::vector<std::string> taken = catalogue.variant_names();
  std::vector<PluginArgument> plugins;
  for (const std::string& value : arguments.values("--plugin")) {
    plugins.push_back(parse_named_path("--plugin", value));
    require_new(taken, "--plugin", plugins.back().name);
    taken.push_back(plugins.back().name);
  }
  return plugins;
}

void load_plugins(const Arguments& arguments, const CommonOptions& common,
                  const CliSettings& settings, Catalogue& catalogue, Complaints& complaints) {
  complaints.check([&] {
    const std::vector<PluginArgument> plugins = read_plugins(arguments, catalogue);
    Catalogue tried = catalogue;
    std::vector<std::string> names;
    add_plugins(plugins, greeting_timeout(common), settings, tried, names);
    for (const PluginArgument& given : plugins) {
      plugin::load(catalogue, given.name, given.path);
    }
    return true;
  });
}

std::vector<std::string> add_workers(const Arguments& arguments, const CommonOptions& common,
                                     const CliSettings& settings, Catalogue& catalogue,
                                     Complaints& complaints) {
  const auto timeout = greeting_timeout(common);
  std::vector<std::string> guests;
  const auto check = [&](auto&& step) {
    complaints.check([&] {
      step();
      return true;
    });
  };
  check([&] {
    add_plugins(read_plugins(arguments, catalogue), timeout, settings, catalogue, guests);
  });
  check([&] { add_builds(arguments, timeout, catalogue); });
  if (!arguments.has("--peers")) return guests;
  std::optional<PeersScript> script;
  std::vector<std::string> peers;
  check([&] {
    script.emplace();
    peers = chosen_peers(arguments, *script);
  });
  complaints.raise();
  check([&] { add_peers(*script, peers, timeout, catalogue, guests); });
  return guests;
}

std::vector<std::string> add_named_peers(const Arguments& arguments,
                                         std::chrono::duration<double> timeout,
                                         Catalogue& catalogue) {
  std::vector<std::string> guests;
  const PeersScript script;
  add_peers(script, chosen_peers(arguments, script), timeout, catalogue, guests);
  return guests;
}

}  // namespace rooflane
