// Tunings as text, and the checks of bind() that every plan shares. See variant.hpp.
#include "variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "error.hpp"
#include "text.hpp"

namespace rooflane {

std::optional<std::int64_t> Tuning::find(std::string_view key) const {
  for (const auto& [name, value] : values_) {
    if (name == key) return value;
  }
  return std::nullopt;
}

std::int64_t Tuning::get(std::string_view key, std::int64_t otherwise) const {
  return find(key).value_or(otherwise);
}

void Tuning::set(std::string_view key, std::int64_t value) {
  for (auto& [name, held] : values_) {
    if (name == key) {
      held = value;
      return;
    }
  }
  values_.emplace_back(key, value);
}

std::string Tuning::text() const {
  std::string text;
  for (const auto& [name, value] : values_) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  }
  return text;
}

std::string_view name_of(Threads threads) {
  return threads == Threads::one ? "one" : threads == Threads::many ? "many" : "device";
}

const Rung* rung_of(const Variant& variant, const Tuning& tuning) {
  const auto step = tuning.find(step_key);
  if (!step || variant.ladder.empty()) return nullptr;
  if (*step < 0 || *step >= std::ssize(variant.ladder)) {
    throw argument_error(fmt::format("{}={}: the ladder of {} {} has the rungs 0 to {}", step_key,
                                     *step, variant.kernel->name, variant.name,
                                     variant.ladder.size() - 1));
  }
  return &variant.ladder[static_cast<std::size_t>(*step)];
}

std::vector<Tuning> step_tunings(const Variant& variant) {
  std::vector<Tuning> tunings;
  for (std::int64_t step = 0; step < std::ssize(variant.ladder); ++step) {
    tunings.push_back({{std::string(step_key), step}});
  }
  return tunings;
}

Threads threads_of(const Variant& variant, const Tuning& tuning) {
  const Rung* const rung = rung_of(variant, tuning);
  return rung != nullptr ? rung->threads : variant.threads;
}

std::unique_ptr<Plan> make_plan(const Variant& variant, const Problem& problem,
                                const Tuning& tuning, const Environment& env,
                                const Operands& constants) {
  const Rung* const rung = rung_of(variant, tuning);
  if (rung != nullptr) {
    if (const auto reason = other_math(problem, env)) {
      throw unavailable_error(fmt::format("{}: {}", tuning.text(), *reason));
    }
    return rung->plan(problem, tuning, env, constants);
  }
  try {
    return variant.plan(problem, tuning, env, constants);
  } catch (const UnfitTuning&) {
    if (!tuning.values().empty()) throw;
    const std::vector<Tuning> list = variant.tunings(problem, env);
    for (std::size_t i = 1; i < list.size(); ++i) {
      try {
        return variant.plan(problem, list[i], env, constants);
      } catch (const UnfitTuning&) {
        continue;
      }
    }
    throw;
  }
}

namespace {

// The text of one key of a tuning as a number within its range.
std::int64_t value_in_range(const std::string& key, const std::string& value, std::int64_t least,
                            std::int64_t most) {
  const auto number = parse_integer(value);
  if (!number || *number < least || *number > most) {
    throw argument_error(
        fmt::format("tunable {}={}: allowed is an integer from {} to {}", key, value, least, most));
  }
  return *number;
}

}  // namespace

Tuning parse_tuning(const Variant& variant, std::string_view text) {
  Tuning tuning;
  std::vector<std::string> names;
  for (const Tunable& tunable : variant.tunables) names.emplace_back(tunable.name);
  if (!variant.ladder.empty()) names.emplace_back(step_key);
  const auto keys = parse_key_values(text);
  for (const auto& [key, value] : keys) {
    if (key == step_key && !variant.ladder.empty()) {
      tuning.set(key, value_in_range(key, value, 0, std::ssize(variant.ladder) - 1));
      if (keys.size() == 1) continue;
      throw argument_error(
          fmt::format("tunable {}={} selects a rung of the ladder and stands alone: rungs have no "
                      "tunables",
                      key, value));
    }
    const auto tunable =
        std::find_if(variant.tunables.begin(), variant.tunables.end(),
                     [&name = key](const Tunable& known) { return known.name == name; });
    if (tunable == variant.tunables.end()) {
      throw argument_error(unknown_name(
          fmt::format("tunable of {} {}", variant.kernel->name, variant.name), key, names));
    }
    tuning.set(key, value_in_range(key, value, tunable->least, tunable->most));
  }
  return tuning;
}

Tuning complete_tuning(const Variant& variant, const Problem& problem, const Environment& env,
                       const Tuning& given) {
  if (rung_of(variant, given) != nullptr) return given;
  const std::vector<Tuning> space = variant.tunings(problem, env);
  const auto agrees = [&](const Tuning& tuning) {
    return std::all_of(variant.tunables.begin(), variant.tunables.end(), [&](const Tunable& t) {
      return !t.selects || !given.find(t.name) || given.find(t.name) == tuning.find(t.name);
    });
  };
  const auto base = std::find_if(space.begin(), space.end(), agrees);
  Tuning tuning = base != space.end() ? *base : space.front();
  for (const auto& [key, value] : given.values()) tuning.set(key, value);
  return tuning;
}

void require_tuning(const Variant& variant, const Problem& problem, const Environment& env,
                    const Tuning& given) {
  if (variant.tuning_defect == nullptr || rung_of(variant, given) != nullptr) return;
  const Tuning complete = complete_tuning(variant, problem, env, given);
  if (const auto defect = variant.tuning_defect(problem, complete, env)) {
    throw argument_error(fmt::format("--tuning {}:{}: {}: {}", variant.name, complete.text(),
                                     problem.text(), *defect));
  }
}

std::vector<Tuning> no_tunings(const Problem&, const Environment&) { return {Tuning()}; }

std::string known_math(std::string_view name) {
  if (std::find(std::begin(maths), std::end(maths), name) == std::end(maths)) {
    throw argument_error(unknown_name("math", name, {std::begin(maths), std::end(maths)}));
  }
  return std::string(name);
}

std::optional<std::string> other_math(const Problem&, const Environment& env) {
  if (env.math == "fp32") return std::nullopt;
  return fmt::format("math {} is not implemented by this variant; fp32 is", env.math);
}

namespace {

void check_view(const TensorSpec& tensor, const Shape& shape, const View& view) {
  const std::span<const std::int64_t> given(view.shape.data(), view.rank);
  if (!std::equal(given.begin(), given.end(), shape.begin(), shape.end())) {
    throw argument_error(fmt::format("tensor {} has shape {}, expected {}", tensor.name,
                                     print_shape(given), print_shape(shape)));
  }
  if (view.empty()) return;
  if (view.data == nullptr) throw argument_error(fmt::format("tensor {} is null", tensor.name));
  const int last = view.rank - 1;
  if (view.shape[last] > 1 && view.strides[last] != 1) {
    throw argument_error(
        fmt::format("tensor {}: the last axis must be contiguous (stride 1, not {})", tensor.name,
                    view.strides[last]));
  }
  for (int i = 0; i < last; ++i) {
    if (view.strides[i] < 0) {
      throw argument_error(fmt::format("tensor {}: stride {} of axis {} is negative", tensor.name,
                                       view.strides[i], i));
    }
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) != 0) {
    throw argument_error(fmt::format("tensor {} is not aligned to its element", tensor.name));
  }
}

// Axes sorted by stride must each step over all that the smaller ones span.
bool overlaps_itself(const View& view) {
  if (view.empty()) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, length
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] > 1) axes.emplace_back(view.strides[i], view.shape[i]);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t span = 1;
  for (const auto& [stride, length] : axes) {
    if (stride < span) return true;
    span += stride * (length - 1);
  }
  return false;
}

}  // namespace

void Plan::bind(const Operands& operands) {
  const std::vector<TensorSpec> tensors = problem_.kernel().tensors(problem_);
  for (const TensorSpec& tensor : tensors) {
    if (tensor.role == Role::constant) continue;
    check_view(tensor, tensor_shape(problem_, tensor), operands.at(tensor.name));
  }
  const TensorSpec& output = output_of(tensors);
  const View& written = operands.at(output.name);
  if (overlaps_itself(written)) {
    throw argument_error(fmt::format("output {}: its elements overlap one another", output.name));
  }
  for (const TensorSpec& tensor : tensors) {
    if (tensor.role != Role::input) continue;
    const View& read = operands.at(tensor.name);
    if (!overlap(read, written)) continue;
    const bool in_place = problem_.kernel().in_place_input == tensor.name;
    if (in_place && same_elements(read, written)) continue;
    throw argument_error(fmt::format("output {} overlaps input {}: {}", output.name, tensor.name,
                                     in_place ? "allowed is no overlap, or the very same elements"
                                              : "they must not share memory"));
  }
  bound_ = operands;
  on_bind(operands);
}

std::vector<std::span<const std::byte>> Plan::regions() const {
  std::vector<std::span<const std::byte>> regions;
  for (const auto& [name, view] : bound_.all()) {
    const auto [begin, end] = view.extent();
    if (begin != end) regions.emplace_back(begin, end);
  }
  return regions;
}

}  // namespace rooflane
