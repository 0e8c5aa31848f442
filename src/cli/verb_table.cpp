// The command line as JSON. See verb_table.hpp.
#include "cli/verb_table.hpp"

#include <nlohmann/json.hpp>

#include "bench/shapes.hpp"
#include "cli/build_facts.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

ordered_json verb_json(const Verb& verb) {
  ordered_json document = {{"name", verb.name}, {"summary", verb.summary}};
  if (verb.declare == nullptr) return document;
  Arguments arguments(verb.name, verb.summary);
  verb.declare(arguments);
  document["options"] = document["positionals"] = ordered_json::array();
  for (const Arguments::Described& described : arguments.described()) {
    document[described.is_positional ? "positionals" : "options"].push_back(
        {{"names", described.names},
         {"value", described.value},
         {"repeatable", described.is_repeatable},
         {"help", described.help}});
  }
  document["examples"] = arguments.example_commands();
  return document;
}

}  // namespace

ordered_json verb_table(std::span<const Verb* const> verbs, const Catalogue& catalogue) {
  ordered_json all = ordered_json::array();
  for (const Verb* verb : verbs) all.push_back(verb_json(*verb));
  return {{"version", build_version},
          {"kernels", catalogue.kernel_names()},
          {"variants", catalogue.variant_names()},
          {"presets", preset_names()},
          {"verbs", all}};
}

}  // namespace rooflane
