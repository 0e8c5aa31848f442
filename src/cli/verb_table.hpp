// `rooflane --verbs`: all options of the command line as JSON, from the tables of `--help`. The
// manual page and the completions of shells are made from it (scripts/command_pages.py).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "cli/verbs.hpp"

namespace rooflane {

// {version, kernels, variants, presets, verbs: [{name, summary, options, positionals, examples}]};
// verbs that leave their arguments to a script have only a name and a summary.
nlohmann::ordered_json verb_table(std::span<const Verb* const> verbs, const Catalogue& catalogue);

}  // namespace rooflane
