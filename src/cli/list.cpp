// `rooflane list`: every kernel and variant; available, or why not.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/options.hpp"
#include "cli/verbs.hpp"
#include "cli/workers.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

struct Listed {
  const Kernel* kernel;
  std::string variant;
  const Variant* record;  // null: not in this build
  std::string library;
  std::optional<std::string> reason;
};

std::vector<Listed> everything(const Catalogue& catalogue) {
  std::vector<Listed> all;
  for (const Kernel* kernel : catalogue.kernels()) {
    for (const CatalogueEntry* entry : catalogue.variants(*kernel)) {
      all.push_back({kernel, entry->name, entry->variant, entry->library, absent_reason(*entry)});
    }
    for (const AbsentVariant& absent : catalogue.absent()) {
      if (absent.kernel == kernel->name) {
        all.push_back({kernel, absent.variant, nullptr, "", absent.reason});
      }
    }
  }
  return all;
}

std::string terminal_text(const std::vector<Listed>& all) {
  TextTable table{{{"kernel"}, {"variant"}, {"backend"}, {"threads"}, {"available"}}, {}};
  for (const Listed& item : all) {
    table.rows.push_back({item.kernel->name, item.variant,
                          item.record ? item.record->backend->name : "-",
                          item.record ? std::string(name_of(item.record->threads)) : "-",
                          item.reason ? "absent: " + *item.reason : "yes"});
  }
  return terminal_table(table);
}

nlohmann::ordered_json parameters_json(const Kernel& kernel) {
  auto list = nlohmann::ordered_json::array();
  for (const ParamSpec& param : kernel.params) {
    const char* kind = param.kind == ParamKind::size   ? "size"
                       : param.kind == ParamKind::flag ? "flag"
                                                       : "real";
    list.push_back({{"name", param.name}, {"kind", kind}, {"required", param.required}});
  }
  return list;
}

nlohmann::ordered_json variant_json(const Listed& item) {
  nlohmann::ordered_json object = {{"name", item.variant}, {"available", !item.reason}};
  if (item.reason) object["reason"] = *item.reason;
  if (!item.record) return object;
  object["backend"] = item.record->backend->name;
  object["threads"] = name_of(item.record->threads);
  if (!item.library.empty()) object["library"] = item.library;
  auto tunables = nlohmann::ordered_json::array();
  for (const Tunable& tunable : item.record->tunables) {
    tunables.push_back({{"name", tunable.name},
                        {"meaning", tunable.meaning},
                        {"least", tunable.least},
                        {"most", tunable.most}});
  }
  object["tunables"] = tunables;
  auto ladder = nlohmann::ordered_json::array();
  for (const Rung& rung : item.record->ladder) {
    ladder.push_back(
        {{"name", rung.name}, {"idea", rung.idea}, {"threads", name_of(rung.threads)}});
  }
  object["ladder"] = ladder;
  return object;
}

nlohmann::ordered_json document(const Catalogue& catalogue, const std::vector<Listed>& all) {
  auto kernels = nlohmann::ordered_json::array();
  for (const Kernel* kernel : catalogue.kernels()) {
    auto variants = nlohmann::ordered_json::array();
    for (const Listed& item : all) {
      if (item.kernel == kernel) variants.push_back(variant_json(item));
    }
    kernels.push_back({{"name", kernel->name},
                       {"summary", kernel->summary},
                       {"parameters", parameters_json(*kernel)},
                       {"variants", variants}});
  }
  return {{"schema_version", 1}, {"kernels", kernels}};
}

void declare(Arguments& arguments) {
  arguments.flag("--json", "as JSON, with parameters, tunables and ladders");
  declare_blas(arguments);
  declare_workers(arguments);
  arguments.examples({"rooflane list", "rooflane list --json"});
}

int run(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  apply_blas(arguments.values("--blas"), catalogue);
  Complaints complaints;
  add_workers(arguments, {}, settings, catalogue, complaints);
  complaints.raise();
  const std::vector<Listed> all = everything(catalogue);
  if (arguments.has("--json")) {
    std::cout << document(catalogue, all).dump(2) << "\n";
  } else {
    std::cout << terminal_text(all);
  }
  return 0;
}

}  // namespace

const Verb list_verb = {"list", "every kernel and variant; available, or why not", declare, run};

}  // namespace rooflane
