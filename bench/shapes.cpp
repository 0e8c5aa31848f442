// Reading the embedded presets. See shapes.hpp.
#include "bench/shapes.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "core/text.hpp"
#include "generated_presets.hpp"

namespace rooflane {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

std::vector<BenchProblem> preset_problems(std::string_view name,
                                          std::span<const Kernel* const> kernels) {
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
