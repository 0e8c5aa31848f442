// Reading the embedded presets. See shapes.hpp.
#include "bench/shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "bench/random_problems.hpp"
#include "core/error.hpp"
#include "core/text.hpp"
#include "generated_presets.hpp"

namespace rooflane {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

namespace {

constexpr std::string_view random_prefix = "random:", formats_prefix = "formats:";

bool is_drawn(std::string_view name) {
  return name.starts_with(random_prefix) || name.starts_with(formats_prefix);
}

std::vector<BenchProblem> drawn_problems(std::string_view name,
                                         std::span<const Kernel* const> kernels) {
  const std::vector<std::string_view> words = split(name, ':');
  std::int64_t numbers[] = {0, 1, 4096};
  bool valid = words.size() <= 4;
  for (std::size_t i = 1; valid && i < words.size(); ++i) {
    const auto number = parse_integer(words[i]);
    valid = number && *number >= (i == 2 ? 0 : 1) && (i != 1 || *number <= 100000);
    if (valid) numbers[i - 1] = *number;
  }
  if (!valid) {
    throw argument_error(
        fmt::format("{}: allowed: {}:N, {}:N:SEED or {}:N:SEED:LARGEST, N from 1 to 100000, SEED "
                    "from 0, LARGEST size from 1",
                    name, words.front(), words.front(), words.front()));
  }
  const auto [count, seed, largest] = numbers;
  const RandomProblems asked = {.count = static_cast<int>(count),
                                .seed = static_cast<std::uint64_t>(seed),
                                .largest = largest,
                                .formats = name.starts_with(formats_prefix)};
  std::vector<BenchProblem> problems;
  for (const Kernel* kernel : kernels) {
    for (Problem& problem : random_problems(*kernel, asked)) {
      problems.push_back({std::move(problem), std::string(name)});
    }
  }
  return problems;
}

}  // namespace

bool is_preset(std::string_view name) {
  const std::vector<std::string> names = preset_names();
  return is_drawn(name) || std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<BenchProblem> parse_preset(std::string_view text, std::string_view name,
                                       std::span<const Kernel* const> kernels) {
  std::vector<BenchProblem> problems;
  for (std::string_view line : split(text, '\n')) {
    line = line.substr(0, line.find('#'));
    while (line.ends_with(' ')) line.remove_suffix(1);
    const std::string_view kernel = line.substr(0, line.find(':'));
    const bool wanted = std::any_of(kernels.begin(), kernels.end(),
                                    [&](const Kernel* known) { return known->name == kernel; });
    if (!wanted) continue;
    for (Problem& problem : parse_shapes(line, kernels)) {
      problems.push_back({std::move(problem), std::string(name)});
    }
  }
  return problems;
}

std::vector<BenchProblem> preset_problems(std::string_view name,
                                          std::span<const Kernel* const> kernels) {
  if (is_drawn(name)) return drawn_problems(name, kernels);
  const auto preset = std::find_if(std::begin(presets), std::end(presets),
                                   [&](const Preset& known) { return name == known.name; });
  if (preset == std::end(presets)) {
    throw argument_error(unknown_name("preset", name, preset_names()));
  }
  return parse_preset(preset->text, name, kernels);
}

}  // namespace rooflane
