// Choosing variants for steps. See swaps.hpp.
#include "model/swaps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::model {

std::vector<Change> parse_changes(const std::string& text) {
  std::vector<Change> changes;
  for (const auto& [what, variant] : parse_key_values(text)) changes.push_back({what, variant});
  if (changes.empty()) throw argument_error("nothing is changed: write STEP=VARIANT");
  return changes;
}

namespace {

bool concerns(const Change& change, const Step& step) {
  return change.what == step.name || change.what == step.kernel->name;
}

const CatalogueEntry* find_entry(const Catalogue& catalogue, const Kernel& kernel,
                                 const std::string& name) {
  for (const CatalogueEntry* entry : catalogue.variants(kernel)) {
    if (entry->name == name) return entry;
  }
  return nullptr;
}

std::uint8_t runner_of(Chain& chain, std::size_t phase, std::size_t step,
                       const CatalogueEntry& entry) {
  try {
    return chain.add(phase, step, entry);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("step {} by {}: {}", chain.phase(phase).steps[step].name,
                                          entry.name, error.what()));
  }
}

}  // namespace

void check_changes(const std::vector<Change>& changes, const Instance& instance,
                   const Catalogue& catalogue) {
  for (const Change& change : changes) {
    std::vector<std::string> names;
    std::set<const Kernel*> kernels;
    for (const Phase& phase : instance.phases) {
      for (const Step& step : phase.steps) {
        for (const std::string& name : {step.name, std::string(step.kernel->name)}) {
          if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
        }
        if (concerns(change, step)) kernels.insert(step.kernel);
      }
    }
    if (kernels.empty()) throw argument_error(unknown_name("step or kernel", change.what, names));
    for (const Kernel* kernel : kernels) {
      const CatalogueEntry& entry = catalogue.variant(*kernel, change.variant);
      if (const auto reason = absent_reason(entry)) {
        throw unavailable_error(
            fmt::format("variant '{}' of {} is absent: {}", change.variant, kernel->name, *reason));
      }
    }
  }
}

void plan_chain(Chain& chain, const Catalogue& catalogue, const std::vector<std::string>& preferred,
                const std::vector<Change>& swaps) {
  for (std::size_t p = 0; p < chain.instance().phases.size(); ++p) {
    const Phase& phase = chain.phase(p);
    for (std::size_t s = 0; s < phase.steps.size(); ++s) {
      std::vector<std::string> names = preferred;
      for (const Change& swap : swaps) {
        if (concerns(swap, phase.steps[s])) names = {swap.variant};
      }
      const CatalogueEntry* chosen = nullptr;
      std::vector<std::string> reasons;
      for (const std::string& name : names) {
        const CatalogueEntry* entry = find_entry(catalogue, *phase.steps[s].kernel, name);
        if (entry == nullptr) continue;
        const auto reason = chain.refusal(p, s, *entry);
        if (!reason) {
          chosen = entry;
          break;
        }
        reasons.push_back(name + ": " + *reason);
      }
      if (chosen == nullptr) {
        throw unavailable_error(fmt::format("step {} ({}): no variant of {} serves it{}{}",
                                            phase.steps[s].name, phase.steps[s].kernel->name,
                                            join(names, ", "), reasons.empty() ? "" : "; ",
                                            join(reasons, "; ")));
      }
      runner_of(chain, p, s, *chosen);
    }
  }
}

std::size_t rank_of(const Call& call, const Catalogue& catalogue,
                    const std::vector<std::string>& preferred, const ChainSettings& settings) {
  Environment environment;
  environment.threads = settings.threads;
  environment.isa = settings.isa;
  environment.math = call.math.empty() ? settings.math : call.math;
  for (std::size_t rank = 0; rank < preferred.size(); ++rank) {
    const CatalogueEntry* const entry =
        find_entry(catalogue, call.problem.kernel(), preferred[rank]);
    if (entry == nullptr || entry->foreign() || absent_reason(*entry)) continue;
    environment.library = entry->library;
    if (!rooflane::refusal(*entry->variant, call.problem, environment)) return rank;
  }
  return preferred.size();
}

Accepts keeping_variants(const Catalogue& catalogue, const std::vector<std::string>& preferred,
                         const ChainSettings& settings) {
  return [=, &catalogue](const Call& fused, const Call& first) {
    return rank_of(fused, catalogue, preferred, settings) <=
           rank_of(first, catalogue, preferred, settings);
  };
}

namespace {

// Builds the swaps of one phase.
class PhaseSwaps {
 public:
  PhaseSwaps(Chain& chain, std::size_t phase, const Catalogue& catalogue, const Notes& note)
      : chain_(chain), phase_(phase), catalogue_(catalogue), note_(note) {}

  std::vector<Swap> of(const std::vector<Change>& changes) {
    Swap all = nothing();
    std::vector<std::string> names;
    for (const Change& change : changes) {
      Swap together = nothing();
      std::vector<Swap> alone;
      for (std::size_t step = 0; step < steps().size(); ++step) {
        if (!concerns(change, steps()[step])) continue;
        const auto runner = runner_for(step, change.variant);
        if (!runner) continue;
        alone.push_back(nothing());
        alone.back().name = steps()[step].name + "=" + change.variant;
        alone.back().of_step[step] = together.of_step[step] = all.of_step[step] = *runner;
      }
      if (alone.empty()) continue;
      together.name = change.what + "=" + change.variant;
      names.push_back(together.name);
      if (alone.size() > 1) swaps_.insert(swaps_.end(), alone.begin(), alone.end());
      swaps_.push_back(std::move(together));
    }
    all.name = join(names, ",");
    if (names.size() > 1) swaps_.push_back(std::move(all));
    return std::move(swaps_);
  }

 private:
  const std::vector<Step>& steps() const { return chain_.phase(phase_).steps; }
  Swap nothing() const { return {"", std::vector<std::uint8_t>(steps().size(), 0)}; }

  std::optional<std::uint8_t> runner_for(std::size_t step, const std::string& variant) {
    const auto skip = [&](const std::string& reason) {
      note_(fmt::format("{}: step {} is not swapped to {}: {}", chain_.phase(phase_).name,
                        steps()[step].name, variant, reason));
      return std::nullopt;
    };
    const CatalogueEntry* entry = find_entry(catalogue_, *steps()[step].kernel, variant);
    if (entry == nullptr) return skip("its kernel has no such variant");
    if (const auto reason = chain_.refusal(phase_, step, *entry)) return skip(*reason);
    const std::uint8_t runner = runner_of(chain_, phase_, step, *entry);
    if (runner == 0) return skip("it is its variant already");
    return runner;
  }

  Chain& chain_;
  std::size_t phase_;
  const Catalogue& catalogue_;
  const Notes& note_;
  std::vector<Swap> swaps_;
};

}  // namespace

std::vector<std::vector<Swap>> plan_swaps(Chain& chain, const Catalogue& catalogue,
                                          const std::vector<Change>& changes, const Notes& note) {
  std::vector<std::vector<Swap>> swaps;
  for (std::size_t phase = 0; phase < chain.instance().phases.size(); ++phase) {
    swaps.push_back(PhaseSwaps(chain, phase, catalogue, note).of(changes));
  }
  return swaps;
}

std::vector<std::vector<Swap>> plan_levels(Chain& chain, const Catalogue& catalogue,
                                           const std::vector<std::string>& levels) {
  std::vector<std::vector<Swap>> swaps;
  for (std::size_t p = 0; p < chain.instance().phases.size(); ++p) {
    std::vector<Swap>& of_phase = swaps.emplace_back();
    const Phase& phase = chain.phase(p);
    for (const std::string& level : levels) {
      Swap swap{level, std::vector<std::uint8_t>(phase.steps.size(), 0)};
      for (std::size_t s = 0; s < phase.steps.size(); ++s) {
        const CatalogueEntry* entry = find_entry(catalogue, *phase.steps[s].kernel, level);
        if (entry != nullptr && !chain.refusal(p, s, *entry)) {
          swap.of_step[s] = runner_of(chain, p, s, *entry);
        } else if (!of_phase.empty()) {
          swap.of_step[s] = of_phase.back().of_step[s];
        }
      }
      of_phase.push_back(std::move(swap));
    }
  }
  return swaps;
}

}  // namespace rooflane::model
