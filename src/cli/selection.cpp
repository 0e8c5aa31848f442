// Which problems and which variants the arguments select.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "bench/groups.hpp"
#include "bench/shapes.hpp"
#include "cli/options.hpp"
#include "cli/terminal.hpp"
#include "core/text.hpp"
#include "io/files.hpp"

namespace rooflane {
namespace {

Error with_prefix(const Error& error, const std::string& prefix) {
  return {error.kind(), prefix + error.what()};
}

// One shape per line; '#' begins a comment.
std::vector<BenchProblem> problems_of_file(const std::string& path,
                                           std::span<const Kernel* const> kernels) {
  std::vector<BenchProblem> problems;
  const std::string text = read_text_file(path);
  int number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    try {
      for (Problem& problem : parse_shapes(line, kernels)) {
        problems.push_back({std::move(problem), path});
      }
    } catch (const Error& error) {
      throw with_prefix(error, fmt::format("{}: line {}: ", path, number));
    }
  }
  if (problems.empty()) throw argument_error(fmt::format("'{}' contains no shapes", path));
  return problems;
}

void add_all(std::vector<BenchProblem>& to, std::vector<BenchProblem> from) {
  for (BenchProblem& problem : from) to.push_back(std::move(problem));
}

bool has_kernel(const std::vector<BenchProblem>& problems, const Kernel& kernel) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const BenchProblem& p) { return &p.problem.kernel() == &kernel; });
}

}  // namespace

std::vector<BenchProblem> problems_of_preset(const std::string& preset,
                                             std::span<const Kernel* const> kernels) {
  if (is_preset(preset)) return preset_problems(preset, kernels);
  if (preset.find('/') != std::string::npos || ::access(preset.c_str(), F_OK) == 0) {
    return problems_of_file(preset, kernels);
  }
  throw argument_error(unknown_name("preset", preset, preset_names()) + "; or a file of shapes");
}

void declare_kernels(Arguments& arguments) {
  arguments.repeatable("-k,--kernel", "K,...", "kernels; default: all");
}

std::vector<const Kernel*> read_kernels(const Arguments& arguments, const Catalogue& catalogue,
                                        Complaints& complaints) {
  std::vector<const Kernel*> named;
  for (const std::string& name : complaints.check([&] { return arguments.list("--kernel"); })) {
    complaints.check([&] {
      named.push_back(&catalogue.kernel(name));
      return true;
    });
  }
  return named;
}

void declare_problems(Arguments& arguments) {
  declare_kernels(arguments);
  arguments.repeatable("--shape", "SHAPE",
                       "KERNEL:key=value,...; ranges 256..4096*2, 1..16+1, ties m=n=k=...");
}

std::vector<BenchProblem> read_problems(const Arguments& arguments, const Catalogue& catalogue,
                                        const std::string& default_preset, Complaints& complaints) {
  const std::vector<const Kernel*> named = read_kernels(arguments, catalogue, complaints);
  std::vector<BenchProblem> problems;
  for (const std::string& shape : arguments.values("--shape")) {
    complaints.check([&] {
      try {
        for (Problem& problem : parse_shapes(shape, catalogue.kernels())) {
          problems.push_back({std::move(problem), ""});
        }
      } catch (const Error& error) {
        throw with_prefix(error, "--shape: ");
      }
      return true;
    });
  }
  const bool presets_given = arguments.has("--preset");
  for (const std::string& preset : complaints.check([&] { return arguments.list("--preset"); })) {
    complaints.check([&] {
      std::vector<BenchProblem> all = problems_of_preset(preset, catalogue.kernels());
      std::erase_if(all, [&](const BenchProblem& p) {
        return !named.empty() &&
               std::find(named.begin(), named.end(), &p.problem.kernel()) == named.end();
      });
      if (all.empty()) {
        throw argument_error(fmt::format("--preset {} has no shapes of the kernels in -k", preset));
      }
      add_all(problems, std::move(all));
      return true;
    });
  }
  const bool nothing_given = named.empty() && arguments.values("--shape").empty() && !presets_given;
  for (const Kernel* kernel : catalogue.kernels()) {
    const bool wanted =
        nothing_given || std::find(named.begin(), named.end(), kernel) != named.end();
    if (!wanted || has_kernel(problems, *kernel)) continue;
    complaints.check([&] {
      std::vector<BenchProblem> defaults = preset_problems(default_preset, catalogue.kernels());
      std::erase_if(defaults, [&](const BenchProblem& p) { return &p.problem.kernel() != kernel; });
      if (defaults.empty() && !nothing_given) {
        throw argument_error(fmt::format("-k {}: preset {} has no shapes of it; give --shape",
                                         kernel->name, default_preset));
      }
      add_all(problems, std::move(defaults));
      return true;
    });
  }
  // The same problem from two sources is one.
  std::set<std::string> seen;
  std::erase_if(problems,
                [&](const BenchProblem& p) { return !seen.insert(p.problem.text()).second; });
  return problems;
}

std::vector<const Kernel*> kernels_of(const std::vector<BenchProblem>& problems,
                                      const Catalogue& catalogue) {
  std::vector<const Kernel*> kernels;
  for (const Kernel* kernel : catalogue.kernels()) {
    if (has_kernel(problems, *kernel)) kernels.push_back(kernel);
  }
  return kernels;
}

namespace {

// What takes part beside the variants that -v names: their namesakes of other builds, and guests.
void add_unnamed_targets(const Catalogue& catalogue, const std::vector<const Kernel*>& kernels,
                         const std::vector<std::string>& names,
                         const std::vector<std::string>& guests, std::vector<Target>& targets) {
  const auto holds = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const Kernel* kernel : kernels) {
    for (const CatalogueEntry* entry : catalogue.variants(*kernel)) {
      const std::size_t at = entry->name.find('@');
      const bool namesake = at != std::string::npos && holds(names, entry->name.substr(0, at));
      const bool wanted = namesake || holds(guests, entry->name);
      if (!wanted || holds(names, entry->name) || absent_reason(*entry)) continue;
      targets.push_back({kernel, entry});
    }
  }
}

}  // namespace

Selection select_targets(const Catalogue& catalogue, const std::vector<const Kernel*>& kernels,
                         const std::vector<std::string>& names, Complaints& complaints,
                         const std::vector<std::string>& guests) {
  Selection selection;
  std::vector<Target>& targets = selection.targets;
  std::set<std::string> noted;
  const auto leave_out = [&](const AbsentVariant& absent) {
    if (noted.insert(absent.variant).second) selection.absent.push_back(absent);
  };
  if (names.empty()) {
    for (const Kernel* kernel : kernels) {
      for (const CatalogueEntry* entry : catalogue.variants(*kernel)) {
        if (const auto reason = absent_reason(*entry)) {
          leave_out({kernel->name, entry->name, *reason});
        } else {
          targets.push_back({kernel, entry});
        }
      }
      for (const AbsentVariant& absent : catalogue.absent()) {
        if (absent.kernel == kernel->name) leave_out(absent);
      }
    }
    return selection;
  }
  for (const std::string& name : names) {
    Complaints each;
    std::size_t found = 0;
    for (const Kernel* kernel : kernels) {
      each.check([&] {
        const CatalogueEntry& entry = catalogue.variant(*kernel, name);
        if (const auto reason = absent_reason(entry)) {
          throw unavailable_error(
              fmt::format("variant '{}' of {} is absent: {}", name, kernel->name, *reason));
        }
        targets.push_back({kernel, &entry});
        ++found;
        return true;
      });
    }
    if (found == 0) {
      complaints.check([&] {
        each.raise();
        return true;
      });
    }
  }
  add_unnamed_targets(catalogue, kernels, names, guests, targets);
  for (const AbsentVariant& absent : catalogue.absent()) {
    const bool missed = std::find(guests.begin(), guests.end(), absent.variant) != guests.end();
    const bool measured = std::any_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
      return absent.kernel == kernel->name;
    });
    if (missed && measured) leave_out(absent);
  }
  return selection;
}

void note_absent(const std::vector<AbsentVariant>& absent) {
  std::vector<std::pair<std::string, std::string>> notes;  // reason, variants
  for (const AbsentVariant& one : absent) {
    const auto known = std::find_if(notes.begin(), notes.end(),
                                    [&](const auto& note) { return note.first == one.reason; });
    if (known == notes.end()) {
      notes.emplace_back(one.reason, one.variant);
    } else {
      known->second += ", " + one.variant;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [reason, variants] : notes)
    texts.push_back(fmt::format("{}: {}", variants, reason));
  if (!texts.empty()) print_note("absent variants: " + join(texts, "; "));
}

void check_tunings(const std::vector<std::pair<std::string, std::string>>& tunings,
                   const std::vector<Target>& targets) {
  std::vector<std::string> names;
  for (const Target& target : targets) {
    if (std::find(names.begin(), names.end(), target.entry->name) == names.end()) {
      names.push_back(target.entry->name);
    }
  }
  for (const auto& [variant, text] : tunings) {
    bool used = false;
    for (const Target& target : targets) {
      if (target.entry->name != variant) continue;
      used = true;
      try {
        parse_tuning(*target.entry->variant, text);
      } catch (const Error& error) {
        throw with_prefix(error,
                          fmt::format("--tuning {}:{}: {}: ", variant, text, target.kernel->name));
      }
    }
    if (!used) {
      throw argument_error("--tuning: " + unknown_name("selected variant", variant, names));
    }
  }
}

void check_planned_tunings(const Suite& suite) {
  for (const GroupCase* planned : suite.cases()) {
    const Case& c = planned->measured;
    if (c.tuning.values().empty()) continue;
    const Variant& variant = *planned->entry->variant;
    const Environment env = c.environment();
    if (refusal(variant, c.problem, env)) continue;
    require_tuning(variant, c.problem, env, c.tuning);
  }
}

BenchOptions bench_options(const CommonOptions& common, const std::vector<BenchProblem>& problems,
                           const std::vector<Target>& targets, const Catalogue& catalogue,
                           const CliSettings& settings) {
  BenchOptions options;
  options.catalogue = &catalogue;
  options.problems = problems;
  for (const Target& target : targets) {
    const std::string& name = target.entry->name;
    if (std::find(options.variants.begin(), options.variants.end(), name) ==
        options.variants.end()) {
      options.variants.push_back(name);
    }
  }
  options.threads = common.threads;
  options.isas = common.isas;
  options.math = common.math;
  options.tunings = common.tunings;
  options.tuned = common.tuned;
  options.library = common.library;
  options.device = common.device;
  if (common.timeout) options.timeout = *common.timeout;
  options.seed = common.seed;
  options.in_process = settings.worker_command.empty();
  options.worker_command = settings.worker_command;
  return options;
}

int exit_status_of(const StatusesByVariant& seen, const std::vector<std::string>& named) {
  for (const auto& [variant, statuses] : seen) {
    for (const Status status : statuses) {
      if (is_bad(status)) return 1;
    }
  }
  for (const std::string& variant : named) {
    const auto found = seen.find(variant);
    if (found == seen.end() || found->second == std::set{Status::unsupported}) return 3;
  }
  return 0;
}

}  // namespace rooflane
