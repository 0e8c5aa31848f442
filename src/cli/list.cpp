// `rooflane list`: lists all kernels and variants, and why some are absent.
#include "cli/list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "backends/highway.hpp"
#include "cli/json_output.hpp"
#include "cli/options.hpp"
#include "cli/verbs.hpp"
#include "cli/workers.hpp"
#include "io/table.hpp"
#include "measure/problem_json.hpp"

namespace rooflane {
namespace {

struct Listed {
  const Kernel* kernel;
  std::string variant;
  const Variant* record;  // null: not in this build
  std::string library;
  std::optional<std::string> reason;
};

std::vector<Listed> variants_of(const Catalogue& catalogue,
                                std::span<const Kernel* const> kernels) {
  std::vector<Listed> all;
  for (const Kernel* kernel : kernels) {
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

// Reasons are printed below the table, because they are sentences. Kernels that lack a variant for
// one reason share a line. The ISA targets that this build lacks come last.
std::string variants_text(const std::vector<Listed>& all) {
  TextTable table{{{"kernel"}, {"variant"}, {"backend"}, {"threads"}, {"available"}}, {}};
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<std::string>>> absent;
  for (const Listed& item : all) {
    table.rows.push_back({item.kernel->name, item.variant,
                          item.record ? item.record->backend->name : "-",
                          item.record ? std::string(name_of(item.record->threads)) : "-",
                          item.reason ? "absent" : "yes"});
    if (!item.reason) continue;
    const std::pair key{item.variant, *item.reason};
    const auto known =
        std::find_if(absent.begin(), absent.end(), [&](const auto& a) { return a.first == key; });
    if (known == absent.end()) {
      absent.push_back({key, {item.kernel->name}});
    } else {
      known->second.push_back(item.kernel->name);
    }
  }
  std::string text = terminal_table(table);
  const std::string targets = absent_isa_targets();
  if (!absent.empty() || !targets.empty()) text += "\n";
  for (const auto& [key, kernels] : absent) {
    text += wrapped(
        fmt::format("{} is absent ({}): {}", key.first, fmt::join(kernels, ", "), key.second));
  }
  if (!targets.empty()) text += wrapped("ISA targets: " + targets);
  return text;
}

std::string problems_text(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    TextTable table{{{"tensor"}, {"role"}, {"dtype"}, {"shape"}}, {}};
    const nlohmann::ordered_json json = problem_json(problem);
    for (const auto& tensor : json["tensors"]) {
      table.rows.push_back({tensor["name"], tensor["role"], tensor["dtype"],
                            print_shape(tensor["shape"].get<Shape>())});
    }
    std::string parameters;
    for (const auto& [name, value] : json["parameters"].items()) {
      parameters += fmt::format("{}{}={}", parameters.empty() ? "" : ", ", name,
                                value.is_string() ? value.get<std::string>() : value.dump());
    }
    const Cost cost = problem.kernel().cost(problem);
    text += (text.empty() ? "" : "\n") + problem.text() + "\n" + wrapped(parameters) +
            fmt::format("{:.6g} flops, {:.6g} exps, {:.6g} compulsory bytes\n", cost.flops,
                        cost.exps, cost.bytes) +
            terminal_table(table);
  }
  return text;
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

void declare_list(Arguments& arguments) {
  declare_kernels(arguments);
  arguments.repeatable(
      "--shape", "SHAPE",
      "print all parameters, tensors and costs of these problems; ranges as in bench");
  arguments.repeatable("--preset", "NAME|FILE",
                       "the same for the problems of a preset, or of random:N[:SEED]");
  arguments.json_output("as JSON, including parameters, tunables, ladders and the problems");
  declare_blas(arguments);
  declare_workers(arguments);
  arguments.examples({"rooflane list", "rooflane list -k gemm,softmax",
                      "rooflane list --shape gemm:m=n=k=64",
                      "rooflane list --json --shape attention:batch=1,heads=2,q_len=4,kv_len=4,"
                      "head_dim=8"});
}

int run_list(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  const JsonOutput json(arguments);
  std::vector<Problem> problems =
      listed_problems(arguments.values("--shape"), arguments.values("--preset"), catalogue);
  apply_blas(arguments.values("--blas"), catalogue);
  Complaints complaints;
  const std::vector<const Kernel*> named = read_kernels(arguments, catalogue, complaints);
  add_workers(arguments, {}, settings, catalogue, complaints);
  complaints.raise();
  const auto kernels = named.empty() ? catalogue.kernels() : std::span(named);
  const std::size_t others = std::erase_if(problems, [&](const Problem& problem) {
    return std::find(kernels.begin(), kernels.end(), &problem.kernel()) == kernels.end();
  });
  if (others > 0 && problems.empty()) {
    throw argument_error("--shape and --preset have no problems of the kernels in -k");
  }
  if (!json.replaces_text()) {
    std::cout << (problems.empty() ? variants_text(variants_of(catalogue, kernels))
                                   : problems_text(problems));
  }
  if (json.asked()) json.write(list_document(catalogue, kernels, problems));
  return 0;
}

}  // namespace

std::vector<Problem> listed_problems(const std::vector<std::string>& shapes,
                                     const std::vector<std::string>& presets,
                                     const Catalogue& catalogue) {
  std::vector<Problem> problems;
  for (const std::string& shape : shapes) {
    try {
      for (Problem& problem : parse_shapes(shape, catalogue.kernels())) {
        problems.push_back(std::move(problem));
      }
    } catch (const Error& error) {
      throw Error(error.kind(), std::string("--shape: ") + error.what());
    }
  }
  for (const std::string& preset : presets) {
    for (BenchProblem& found : problems_of_preset(preset, catalogue.kernels())) {
      problems.push_back(std::move(found.problem));
    }
  }
  return problems;
}

nlohmann::ordered_json list_document(const Catalogue& catalogue,
                                     std::span<const Kernel* const> kernels,
                                     const std::vector<Problem>& problems) {
  auto list = nlohmann::ordered_json::array();
  for (const Kernel* kernel : kernels) {
    auto variants = nlohmann::ordered_json::array();
    for (const Listed& item : variants_of(catalogue, std::array{kernel})) {
      variants.push_back(variant_json(item));
    }
    list.push_back({{"name", kernel->name},
                    {"summary", kernel->summary},
                    {"parameters", parameters_json(*kernel)},
                    {"variants", variants}});
  }
  auto resolved = nlohmann::ordered_json::array();
  for (const Problem& problem : problems) resolved.push_back(problem_json(problem));
  return {{"schema_version", 1}, {"kernels", list}, {"problems", resolved}};
}

const Verb list_verb = {"list", "lists all kernels and variants, and why some are absent",
                        declare_list, run_list};

}  // namespace rooflane
