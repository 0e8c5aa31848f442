// From options to the suite. See groups.hpp.
#include "bench/groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "backends/highway.hpp"
#include "bench/ablation.hpp"
#include "bench/google_benchmark.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "measure/verify.hpp"

namespace rooflane {

namespace {

// More threads than CPUs are allowed (they share them); this bound only catches slips.
constexpr int most_threads = 1024;

void check_options(const BenchOptions& options) {
  if (options.problems.empty()) throw argument_error("nothing to measure: no shape and no preset");
  if (options.threads.empty()) throw argument_error("threads: at least one number is needed");
  for (const int threads : options.threads) {
    if (threads < 1 || threads > most_threads) {
      throw argument_error(
          fmt::format("threads={}: allowed is an integer from 1 to {}", threads, most_threads));
    }
  }
  if (options.placements.size() > 1 && (options.ladder || options.fusion)) {
    throw argument_error("--ladder and --fusion take one --placement");
  }
  if (options.ladder && options.fusion) {
    throw argument_error("--ladder and --fusion are two questions: give one");
  }
  for (const auto& [asked, flag] :
       {std::pair(options.ladder, "--ladder"), std::pair(options.fusion, "--fusion")}) {
    if (asked && !options.tunings.empty()) {
      throw argument_error(
          fmt::format("{} measures variants at their own tuning: --tuning has no place", flag));
    }
    if (asked && options.tuned_beside_model) {
      throw argument_error(
          fmt::format("{} measures variants at their own tuning: --tuned has no place", flag));
    }
  }
  options.catalogue->math(options.math);
  for (const std::string& isa : options.isas) resolve_isa(isa);
  for (const std::string& placement : options.placements) placed(machine().cpus, placement);
  if (options.in_process && options.placements.size() > 1) {
    throw argument_error("--placement: workers in this process share one placement");
  }
  if (!(options.min_time >= 0)) throw argument_error("min_time: allowed are seconds from 0 on");
  if (!(options.timeout > 0)) throw argument_error("timeout: allowed are seconds above 0");
}

// Whether a device of the backend honours a number of threads. Opens its drivers, which takes a
// GPU's a second. Throws Error when there is no such device. Devices that only a foreign worker
// knows (a peer's CUDA) are no CPUs.
bool device_takes_threads(const Backend& backend, int index) {
  if (backend.devices == nullptr) return false;
  if (index == 0 && backend.devices->count() == 0) return true;  // its rows will be UNSUPPORTED
  return backend.devices->facts(index).is_cpu;
}

// The entries to measure for a kernel. A name that only other measured kernels have is left out.
std::vector<const CatalogueEntry*> chosen_entries(const BenchOptions& options,
                                                  const Kernel& kernel) {
  const Catalogue& catalogue = *options.catalogue;
  if (options.variants.empty()) return catalogue.variants(kernel);
  std::vector<const CatalogueEntry*> entries;
  for (const std::string& name : options.variants) {
    const auto& all = catalogue.entries();
    const bool elsewhere = std::any_of(all.begin(), all.end(), [&](const CatalogueEntry& entry) {
      return entry.name == name && entry.variant->kernel != &kernel &&
             std::any_of(options.problems.begin(), options.problems.end(), [&](const auto& p) {
               return &p.problem.kernel() == entry.variant->kernel;
             });
    });
    const auto here = catalogue.variants(kernel);
    const bool known = std::any_of(
        here.begin(), here.end(), [&](const CatalogueEntry* entry) { return entry->name == name; });
    if (!known && elsewhere) continue;
    const CatalogueEntry* const entry = &catalogue.variant(kernel, name);
    if (std::find(entries.begin(), entries.end(), entry) == entries.end()) entries.push_back(entry);
  }
  return entries;
}

Tuning tuning_of(const BenchOptions& options, const CatalogueEntry& entry) {
  for (const auto& [variant, text] : options.tunings) {
    if (variant == entry.name) return parse_tuning(*entry.variant, text);
  }
  return {};
}

// A tuning for a variant that is not measured would silently do nothing.
void check_tunings(const BenchOptions& options, const std::vector<Group>& groups) {
  std::vector<std::string> measured;
  for (const Group& group : groups) {
    for (const GroupCase& c : group.cases) measured.push_back(c.measured.variant);
  }
  std::sort(measured.begin(), measured.end());
  measured.erase(std::unique(measured.begin(), measured.end()), measured.end());
  for (const auto& [variant, text] : options.tunings) {
    if (!std::binary_search(measured.begin(), measured.end(), variant)) {
      throw argument_error(unknown_name("variant of the tuning", variant, measured));
    }
  }
}

// `tuned_of_two`: the same case is also measured with the variant's own choice.
std::string case_name(const Case& c, bool tuned_of_two = false) {
  std::string name = fmt::format("{}/{}/{}/threads:{}/{}", c.problem.kernel().name, c.variant,
                                 c.problem.shape(), c.threads, name_of(c.cache));
  if (!c.placement.empty()) name += fmt::format("/placement:{}", c.placement);
  if (!c.isa.empty()) name += fmt::format("/isa:{}", c.isa);
  if (c.distribution != &uniform) name += fmt::format("/inputs:{}", c.distribution->name);
  if (tuned_of_two) name += "/tuned";
  if (const auto step = c.tuning.find(step_key)) name += fmt::format("/{}:{}", step_key, *step);
  return name;
}

// A case of an entry at the group's threads and the default ISA target.
Case case_of(const BenchOptions& options, const CatalogueEntry& entry, const Tuning& tuning,
             const Group& group) {
  const Variant& variant = *entry.variant;
  Case c;
  c.problem = group.problem;
  c.variant = entry.name;
  c.tuning = tuning;
  c.math = math_for(group.problem, options.math);
  c.threads = group.threads;
  c.library = entry.library;
  if (c.library.empty() && variant.backend->libraries != nullptr) c.library = options.library;
  const bool on_device = variant.threads == Threads::device;
  // Devices that only a foreign worker knows have no number here.
  c.device = on_device && variant.backend->devices != nullptr ? options.device : 0;
  c.cache = options.cache;
  c.timer = on_device ? options.timer : Timer::steady;
  c.seed = options.seed;
  c.distribution = options.distribution;
  return c;
}

// Whether another build's variant of this name is measured too.
bool stands_beside_build(const BenchOptions& options, const std::string& name) {
  return std::any_of(options.variants.begin(), options.variants.end(),
                     [&](const std::string& other) { return other.starts_with(name + "@"); });
}

// The case with its entry of the tuned schedules. Nothing where there is none, where a tuning was
// given, and beside another build, which may lack the schedule: both run at their own choice then,
// unless that is measured too.
std::optional<Case> tuned_case(const BenchOptions& options, const CatalogueEntry& entry,
                               const Case& c) {
  if (options.tuned == nullptr || !c.tuning.values().empty()) return std::nullopt;
  if (entry.name.find('@') != std::string::npos) return std::nullopt;
  if (stands_beside_build(options, entry.name) && !options.tuned_beside_model) return std::nullopt;
  const auto found =
      find_tuned(*options.tuned, entry.name, *entry.variant, c.problem, c.environment());
  if (!found) return std::nullopt;
  Case tuned = c;
  tuned.tuning = found->tuning;
  tuned.stored = true;
  return tuned;
}

std::vector<std::string> isas_of(const BenchOptions& options, const CatalogueEntry& entry) {
  const bool takes_isa = entry.variant->backend->takes_isa;
  return takes_isa && !options.isas.empty() ? options.isas : std::vector<std::string>{""};
}

// The run's placement, and those beside it for a case with CPUs of its own.
std::vector<std::string> placements_of(const BenchOptions& options, const Case& c) {
  std::vector<std::string> placements = {""};
  if (c.threads > 0 && options.placements.size() > 1) {
    placements.insert(placements.end(), options.placements.begin() + 1, options.placements.end());
  }
  return placements;
}

// The cases that an entry adds to a group.
void add_cases(const BenchOptions& options, const CatalogueEntry& entry, bool takes_singles,
               bool first, Group& group) {
  const Variant& variant = *entry.variant;
  Case c = case_of(options, entry, tuning_of(options, entry), group);
  if (threads_of(variant, c.tuning) == Threads::one) {
    if (!takes_singles) return;
    c.threads = 1;
  }
  const bool on_device = variant.threads == Threads::device;
  if (on_device && !device_takes_threads(*variant.backend, options.device)) {
    if (!first) return;
    c.threads = 0;
  }
  for (const std::string& isa : isas_of(options, entry)) {
    for (const std::string& placement : placements_of(options, c)) {
      c.isa = isa;
      c.placement = placement;
      const std::optional<Case> tuned = tuned_case(options, entry, c);
      if (tuned) {
        group.cases.push_back({*tuned, &entry, case_name(*tuned, options.tuned_beside_model), 0});
      }
      if (!tuned || options.tuned_beside_model) group.cases.push_back({c, &entry, case_name(c), 0});
    }
  }
}

// The case with one decision changed, for each that has another way.
void add_ablation(const CatalogueEntry& entry, Case c, Group& group) {
  for (const Tuning& tuning : one_factor_tunings(*entry.variant, c.problem, c.environment())) {
    const std::string name = case_name(c);
    c.tuning = tuning;
    group.cases.push_back({c, &entry, fmt::format("{}/tuning:{}", name, tuning.text()), 0});
    c.tuning = {};
  }
}

// Every rung of an entry's ladder but the one that is for --fusion, or that one and the variant
// with one decision changed; then the variant itself. Those with one thread, and on a device that
// takes no threads, once.
void add_ladder(const BenchOptions& options, const CatalogueEntry& entry,
                const std::vector<int>& counts, Group& group) {
  const Variant& variant = *entry.variant;
  std::vector<Tuning> tunings = step_tunings(variant);
  const std::optional<std::int64_t> apart = separate_step(variant);
  std::erase_if(tunings, [&](const Tuning& tuning) {
    return (tuning.find(step_key) == apart) != options.fusion;
  });
  tunings.emplace_back();
  const bool whole_device =
      variant.threads == Threads::device && !device_takes_threads(*variant.backend, options.device);
  for (const std::string& isa : isas_of(options, entry)) {
    for (const Tuning& tuning : tunings) {
      Case c = case_of(options, entry, tuning, group);
      c.isa = isa;
      const bool single = threads_of(variant, tuning) == Threads::one;
      const std::vector<int> once = {whole_device ? 0 : 1};
      for (const int threads : single || whole_device ? once : counts) {
        c.threads = threads;
        if (options.fusion && tuning.values().empty()) add_ablation(entry, c, group);
        group.cases.push_back({c, &entry, case_name(c), 0});
      }
    }
  }
}

// The variants with a measured ladder: the chosen ones, which must all have one, or all that have
// one.
std::vector<const CatalogueEntry*> entries_with_ladder(const BenchOptions& options,
                                                       const Kernel& kernel) {
  const auto has = [&](const CatalogueEntry* entry) {
    return options.fusion ? separate_step(*entry->variant).has_value()
                          : !entry->variant->ladder.empty();
  };
  std::vector<std::string> names;
  for (const CatalogueEntry* entry : options.catalogue->variants(kernel)) {
    if (has(entry)) names.push_back(entry->name);
  }
  std::vector<const CatalogueEntry*> entries = chosen_entries(options, kernel);
  if (options.variants.empty()) std::erase_if(entries, [&](const auto* e) { return !has(e); });
  for (const CatalogueEntry* entry : entries) {
    if (has(entry)) continue;
    throw argument_error(fmt::format(
        "{}: variant '{}' of {} has no {}; with one: {}", options.fusion ? "--fusion" : "--ladder",
        entry->name, kernel.name, options.fusion ? "rung that does apart what it fuses" : "ladder",
        names.empty() ? "none" : join(names, ", ")));
  }
  return entries;
}

// Each number of threads once, in the order given.
std::vector<int> thread_counts(const BenchOptions& options) {
  std::vector<int> counts;
  for (const int threads : options.threads) {
    if (std::find(counts.begin(), counts.end(), threads) == counts.end()) counts.push_back(threads);
  }
  return counts;
}

Group ladder_group(const BenchOptions& options, const BenchProblem& chosen,
                   const std::vector<int>& counts) {
  const int most = *std::max_element(counts.begin(), counts.end());
  Group group{chosen.problem, chosen.preset, most, options.cache, {}};
  for (const CatalogueEntry* entry : entries_with_ladder(options, chosen.problem.kernel())) {
    add_ladder(options, *entry, counts, group);
  }
  return group;
}

bool has_math(const Variant& variant, std::string_view name) {
  return std::any_of(variant.maths.begin(), variant.maths.end(),
                     [&](const Math* math) { return math->name == name; });
}

// Leaves out variants that are made only for other maths. If no others remain, they stay, because
// their refusals give the reason.
std::vector<const CatalogueEntry*> entries_for(const BenchOptions& options,
                                               const Problem& problem) {
  const Kernel& kernel = problem.kernel();
  std::vector<const CatalogueEntry*> entries = chosen_entries(options, kernel);
  const std::string math = math_for(problem, options.math);
  const bool served = std::any_of(entries.begin(), entries.end(), [&](const CatalogueEntry* entry) {
    return has_math(*entry->variant, math);
  });
  if (!served) return entries;
  std::erase_if(entries, [&](const CatalogueEntry* entry) {
    const Variant& variant = *entry->variant;
    return !has_math(variant, math) && !has_math(variant, kernel.maths.front()->name);
  });
  return entries;
}

// One group per number of threads.
void add_groups(const BenchOptions& options, const BenchProblem& chosen,
                const std::vector<int>& counts, std::vector<Group>& groups) {
  const int with_singles =
      std::find(counts.begin(), counts.end(), 1) != counts.end() ? 1 : counts.front();
  const auto entries = entries_for(options, chosen.problem);
  for (const int threads : counts) {
    Group group{chosen.problem, chosen.preset, threads, options.cache, {}};
    for (const CatalogueEntry* entry : entries) {
      add_cases(options, *entry, threads == with_singles, threads == counts.front(), group);
    }
    groups.push_back(std::move(group));
  }
}

// Leaves the cases that Google Benchmark's filter chooses, and numbers their rows.
void keep_matching(const std::string& filter, std::vector<Group>& groups) {
  const auto matches = name_filter(filter);
  std::int64_t rows = 0;
  std::string some_name;
  for (Group& group : groups) {
    if (!group.cases.empty()) some_name = group.cases.front().name;
    std::erase_if(group.cases, [&](const GroupCase& c) { return !matches(c.name); });
    for (GroupCase& c : group.cases) c.row = rows++;
  }
  std::erase_if(groups, [](const Group& group) { return group.cases.empty(); });
  if (groups.empty()) {
    throw argument_error(fmt::format("--benchmark_filter={}: matches no case; names look like {}",
                                     filter, some_name));
  }
}

}  // namespace

std::optional<std::int64_t> separate_step(const Variant& variant) {
  const auto rung = std::find_if(variant.ladder.begin(), variant.ladder.end(),
                                 [](const Rung& r) { return r.name == separate_rung; });
  if (rung == variant.ladder.end()) return std::nullopt;
  return rung - variant.ladder.begin();
}

std::string Group::title() const {
  return fmt::format("{} threads={} {}", problem.text(), threads, name_of(cache));
}

std::vector<const GroupCase*> Suite::cases() const {
  std::vector<const GroupCase*> all;
  for (const Group& group : groups) {
    for (const GroupCase& c : group.cases) all.push_back(&c);
  }
  return all;
}

std::vector<std::string> Suite::names() const {
  std::vector<std::string> all;
  for (const GroupCase* c : cases()) all.push_back(c->name);
  return all;
}

Suite make_suite(const BenchOptions& options) {
  check_options(options);
  const std::vector<int> counts = thread_counts(options);
  Suite suite;
  std::vector<std::string> seen;
  for (const BenchProblem& chosen : options.problems) {
    const std::string text = chosen.problem.text();
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
    seen.push_back(text);
    if (options.ladder || options.fusion) {
      suite.groups.push_back(ladder_group(options, chosen, counts));
    } else {
      add_groups(options, chosen, counts, suite.groups);
    }
  }
  check_tunings(options, suite.groups);
  keep_matching(options.google_benchmark.filter, suite.groups);
  return suite;
}

}  // namespace rooflane
