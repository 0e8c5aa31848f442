// Which single changes are legal. See ablation.hpp.
#include "bench/ablation.hpp"

#include <algorithm>
#include <span>
#include <string_view>

namespace rooflane {
namespace {

// Tunables that are one decision together.
constexpr std::string_view loop_order[] = {"order"};
constexpr std::string_view micro_tile[] = {"mr", "nr"};

// The first of the search space's values of these keys that are others than the choice's and legal
// with all the rest of it.
std::optional<Tuning> changed(const Variant& variant, const Problem& problem,
                              const Environment& env, std::span<const std::string_view> keys,
                              std::span<const Tuning> space) {
  const Tuning& choice = space.front();
  for (const Tuning& other : space) {
    Tuning tuning = choice;
    for (const std::string_view key : keys) {
      const auto value = other.find(key);
      if (!value || !choice.find(key)) return std::nullopt;
      tuning.set(key, *value);
    }
    if (tuning == choice) continue;
    if (variant.tuning_defect == nullptr || !variant.tuning_defect(problem, tuning, env)) {
      return tuning;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Tuning> one_factor_tunings(const Variant& variant, const Problem& problem,
                                       const Environment& env) {
  std::vector<Tuning> tunings;
  if (refusal(variant, problem, env)) return tunings;
  const std::vector<Tuning> space = variant.tunings(problem, env);
  for (const std::span<const std::string_view> keys :
       {std::span<const std::string_view>(loop_order),
        std::span<const std::string_view>(micro_tile)}) {
    if (auto tuning = changed(variant, problem, env, keys, space)) {
      tunings.push_back(std::move(*tuning));
    }
  }
  return tunings;
}

}  // namespace rooflane
