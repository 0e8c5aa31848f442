// Tunings as text, and the checks of bind() that every plan shares. See variant.hpp.
#include "variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "error.hpp"
#include "text.hpp"
#include "tuned.hpp"

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

namespace {

// Why problem and environment are not among these maths and formats.
std::optional<std::string> outside(const Problem& problem, const Environment& env,
                                   std::span<const Math* const> maths,
                                   std::span<const DType> dtypes) {
  std::vector<std::string> names;
  for (const Math* math : maths) names.emplace_back(math->name);
  if (std::find(names.begin(), names.end(), env.math) == names.end()) {
    return fmt::format("math {} is not implemented by this variant; {} {}", env.math,
                       join(names, ", "), names.size() > 1 ? "are" : "is");
  }
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) != dtypes.end()) continue;
    std::vector<std::string> types;
    for (const DType dtype : dtypes) types.emplace_back(dtype->name);
    return fmt::format("{} {} is not implemented by this variant; {} {}", tensor.dtype->name,
                       tensor.name, join(types, ", "), types.size() > 1 ? "are" : "is");
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> refusal(const Variant& variant, const Problem& problem,
                                   const Environment& env) {
  if (auto reason = outside(problem, env, variant.maths, variant.dtypes)) return reason;
  if (auto reason = math_defect(problem, env.math)) return reason;
  return variant.unsupported == nullptr ? std::nullopt : variant.unsupported(problem, env);
}

namespace {

void check_view(const TensorSpec& tensor, const Shape& shape, const View& view) {
  const std::span<const std::int64_t> given(view.shape.data(), view.rank);
  if (!std::equal(given.begin(), given.end(), shape.begin(), shape.end())) {
    throw argument_error(fmt::format("tensor {} has shape {}, expected {}", tensor.name,
                                     print_shape(given), print_shape(shape)));
  }
  if (view.dtype != tensor.dtype) {
    throw argument_error(fmt::format("tensor {} is {}, expected {}", tensor.name, view.dtype->name,
                                     tensor.dtype->name));
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
    if (view.strides[i] < 0 || view.strides[i] % view.dtype->block != 0) {
      throw argument_error(fmt::format("tensor {}: stride {} of axis {} is {}", tensor.name,
                                       view.strides[i], i,
                                       view.strides[i] < 0 ? "negative" : "no whole block"));
    }
  }
  // Blocks begin with a 16-bit scale.
  const std::size_t alignment = view.dtype->block == 1 ? size_of(view.dtype) : 2;
  if (reinterpret_cast<std::uintptr_t>(view.data) % alignment != 0) {
    throw argument_error(fmt::format("tensor {} is not aligned to its element", tensor.name));
  }
}

// The plan of a tuned schedule; null if the problem has none, or if the plan cannot be made: an
// entry of a store must not make planning fail.
std::unique_ptr<Plan> tuned_plan(const Variant& variant, const Problem& problem,
                                 const Environment& env, const Operands& constants) {
  const TunedSchedules& schedules = env.tuned != nullptr ? *env.tuned : tuned_schedules();
  const auto found = find_tuned(schedules, variant.name, variant, problem, env);
  if (!found) return nullptr;
  try {
    return variant.plan(problem, found->tuning, env, constants);
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Variant& variant, const Problem& problem,
                                const Tuning& tuning, const Environment& env,
                                const Operands& constants) {
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (tensor.role != Role::constant) continue;
    check_view(tensor, tensor_shape(problem, tensor), constants.at(tensor.name));
  }
  const Rung* const rung = rung_of(variant, tuning);
  if (rung != nullptr) {
    if (const auto reason = outside(problem, env, only_fp32, only_float32)) {
      throw unavailable_error(fmt::format("{}: {}", tuning.text(), *reason));
    }
    return rung->plan(problem, tuning, env, constants);
  }
  if (tuning.values().empty()) {
    if (auto plan = tuned_plan(variant, problem, env, constants)) return plan;
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
  if (variant.complete != nullptr) return variant.complete(problem, given, env);
  Tuning whole;
  for (const Tunable& t : variant.tunables) {
    if (const auto value = given.find(t.name)) whole.set(t.name, *value);
  }
  // Listing the space takes longer than a plan that is given its tuning.
  if (!whole.values().empty() && whole.values().size() == variant.tunables.size()) return whole;
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

namespace {

// Axes sorted by stride must each step over all that the smaller ones span.
bool overlaps_itself(const View& view) {
  if (view.empty()) return false;
  std::array<std::pair<std::int64_t, std::int64_t>, View::max_rank> axes;  // stride, length
  auto end = axes.begin();
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] > 1) *end++ = {view.strides[i], view.shape[i]};
  }
  std::sort(axes.begin(), end);
  std::int64_t span = 1;
  for (auto axis = axes.begin(); axis != end; ++axis) {
    if (axis->first < span) return true;
    span += axis->first * (axis->second - 1);
  }
  return false;
}

// An output may share memory with nothing else: neither with itself, nor another output, nor, but
// for the kernel's in-place input, what is read.
void check_overlaps(const Kernel& kernel, std::span<const TensorSpec> tensors,
                    const TensorSpec& output, const Operands& operands) {
  const View& written = operands.at(output.name);
  if (overlaps_itself(written)) {
    throw argument_error(fmt::format("output {}: its elements overlap one another", output.name));
  }
  for (const TensorSpec& tensor : tensors) {
    if (tensor.role == Role::constant || tensor.name == output.name) continue;
    const View& other = operands.at(tensor.name);
    if (!overlap(other, written)) continue;
    const bool in_place = kernel.in_place_input == tensor.name;
    if (in_place && same_elements(other, written)) continue;
    throw argument_error(fmt::format("output {} overlaps {} {}: {}", output.name,
                                     is_written(tensor.role) ? "output" : "input", tensor.name,
                                     in_place ? "allowed is no overlap, or the very same elements"
                                              : "they must not share memory"));
  }
}

}  // namespace

void Plan::bind(const Operands& operands) {
  if (shapes_.empty()) {
    tensors_ = problem_.kernel().tensors(problem_);
    for (const TensorSpec& tensor : tensors_) shapes_.push_back(tensor_shape(problem_, tensor));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].role == Role::constant) continue;
    check_view(tensors_[i], shapes_[i], operands.at(tensors_[i].name));
  }
  for (const TensorSpec& output : tensors_) {
    if (is_written(output.role)) check_overlaps(problem_.kernel(), tensors_, output, operands);
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
