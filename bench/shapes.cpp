// Reading the embedded presets. See shapes.hpp.
#include "bench/shapes.hpp"

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

constexpr std::string_view random_prefix = "random:";

std::vector<BenchProblem> drawn_problems(std::string_view name,
                                         std::span<const Kernel* const> kernels) {
  const std::vector<std::string_view> words = split(name.substr(random_prefix.size()), ':');
  const auto count = parse_integer(words.front());
  const auto seed = words.size() > 1 ? parse_integer(words[1]) : 1;
  if (!count || *count < 1 || *count > 10000 || !seed || *seed < 0 || words.size() > 2) {
    throw argument_error(std::string(name) +
                         ": allowed: random:N or random:N:SEED, N from 1 to "
                         "10000, SEED from 0");
  }
  std::vector<BenchProblem> problems;
  for (const Kernel* kernel : kernels) {
    for (Problem& problem :
         random_problems(*kernel, static_cast<int>(*count), static_cast<std::uint64_t>(*seed))) {
      problems.push_back({std::move(problem), std::string(name)});
    }
  }
  return problems;
}

}  // namespace

bool is_preset(std::string_view name) {
  const std::vector<std::string> names = preset_names();
  return name.starts_with(random_prefix) ||
         std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<BenchProblem> preset_problems(std::string_view name,
                                          std::span<const Kernel* const> kernels) {
  if (name.starts_with(random_prefix)) return drawn_problems(name, kernels);
  const auto preset = std::find_if(std::begin(presets), std::end(presets),
                                   [&](const Preset& known) { return name == known.name; });
  if (preset == std::end(presets)) {
    throw argument_error(unknown_name("preset", name, preset_names()));
  }
  std::vector<BenchProblem> problems;
  for (std::string_view line : split(preset->text, '\n')) {
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

}  // namespace rooflane
