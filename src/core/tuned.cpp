// Which entry of tuned schedules serves a problem. See tuned.hpp.
#include "tuned.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "error.hpp"

namespace rooflane {
namespace {

// What entries must agree with besides the problem.
struct Place {
  std::string isa, device;
  int threads = 1;
};

// Nothing where the device is not known before a worker opens it.
std::optional<Place> place_of(const Variant& variant, const Environment& env) {
  const Backend& backend = *variant.backend;
  Place place{backend.isa, "", env.threads};
  if (backend.isa_named != nullptr) place.isa = backend.isa_named(env.isa);
  if (variant.threads == Threads::one) place.threads = 1;
  if (variant.threads != Threads::device) return place;
  if (backend.devices == nullptr || env.device >= backend.devices->count()) return std::nullopt;
  const DeviceFacts facts = backend.devices->facts(env.device);
  place.device = facts.name;
  if (!facts.is_cpu) place.threads = 0;
  return place;
}

bool is_at(const TunedEntry& entry, const Place& place) {
  return entry.isa == place.isa && entry.device == place.device && entry.threads == place.threads;
}

// The distance between values of one parameter. Its kind decides what may differ.
std::optional<double> distance_of(const ParamSpec& param, const Problem& tuned,
                                  const Problem& wanted) {
  if (param.kind != ParamKind::size) {
    // A default that follows from sizes is the same choice at other sizes.
    const bool both_default = !tuned.has(param.name) && !wanted.has(param.name);
    const bool equal = both_default || tuned.value(param.name) == wanted.value(param.name);
    return equal ? std::optional(0.0) : std::nullopt;
  }
  const double x = tuned.value(param.name), y = wanted.value(param.name);
  if (x == y) return 0.0;
  if (x == 0 || y == 0) return std::nullopt;
  return std::abs(std::log2(x / y));
}

// The printed form leaves out what is at its default, whoever wrote it down.
Problem as_printed(const Problem& problem) {
  const Kernel* const kernels[] = {&problem.kernel()};
  return parse_problem(problem.text(), kernels);
}

// The entry's tuning made complete for the problem; nothing where it is illegal there, or names
// what this build does not know.
std::optional<Tuning> legal_tuning(const TunedEntry& entry, const Variant& variant,
                                   const Problem& problem, const Environment& env) {
  try {
    const Tuning tuning =
        complete_tuning(variant, problem, env, parse_tuning(variant, entry.tuning));
    const bool legal = variant.tuning_defect == nullptr || rung_of(variant, tuning) != nullptr ||
                       !variant.tuning_defect(problem, tuning, env);
    return legal ? std::optional(tuning) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

const TunedSchedules& no_tuned_schedules() {
  static const TunedSchedules none;
  return none;
}

std::optional<double> tuned_distance(const Problem& tuned, const Problem& wanted) {
  if (&tuned.kernel() != &wanted.kernel()) return std::nullopt;
  double most = 0;
  for (const ParamSpec& param : tuned.kernel().params) {
    const auto distance = distance_of(param, tuned, wanted);
    if (!distance) return std::nullopt;
    most = std::max(most, *distance);
  }
  return most;
}

bool usually_cold(const Problem& problem) {
  constexpr std::int64_t most_rows = 16;
  const auto& params = problem.kernel().params;
  const bool has_rows = std::any_of(params.begin(), params.end(), [](const ParamSpec& param) {
    return std::string_view(param.name) == "m";
  });
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  const bool keeps = std::any_of(tensors.begin(), tensors.end(), [](const TensorSpec& tensor) {
    return tensor.role == Role::constant;
  });
  return keeps && has_rows && problem.size("m") <= most_rows;
}

std::optional<TunedChoice> find_tuned(const TunedSchedules& schedules, std::string_view name,
                                      const Variant& variant, const Problem& problem,
                                      const Environment& env) {
  std::vector<const TunedEntry*> family;
  for (const TunedEntry& entry : schedules.entries) {
    if (entry.variant == name && entry.kernel == problem.kernel().name && entry.math == env.math &&
        entry.problem) {
      family.push_back(&entry);
    }
  }
  // Asked only now: the place opens a device's drivers.
  if (family.empty() || refusal(variant, problem, env)) return std::nullopt;
  const std::optional<Place> place = place_of(variant, env);
  if (!place) return std::nullopt;
  const Problem wanted = as_printed(problem);
  std::vector<TunedChoice> choices;
  for (const TunedEntry* entry : family) {
    if (!is_at(*entry, *place)) continue;
    const auto distance = tuned_distance(*entry->problem, wanted);
    if (!distance || *distance > (entry->exact ? 0 : most_tuned_distance)) continue;
    choices.push_back({{}, entry, *distance});
  }
  const bool cold = place->threads > 0 && usually_cold(wanted);
  std::stable_sort(choices.begin(), choices.end(),
                   [cold](const TunedChoice& x, const TunedChoice& y) {
                     return std::pair(x.entry->cold != cold, x.distance) <
                            std::pair(y.entry->cold != cold, y.distance);
                   });
  for (TunedChoice& choice : choices) {
    const auto tuning = legal_tuning(*choice.entry, variant, problem, env);
    if (!tuning) continue;
    choice.tuning = *tuning;
    return choice;
  }
  return std::nullopt;
}

}  // namespace rooflane
