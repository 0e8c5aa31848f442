// Reading the embedded presets. See shapes.hpp.
#include "bench/shapes.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/text.hpp"
#include "shapes_crossover.hpp"
#include "shapes_default.hpp"
#include "shapes_edge.hpp"
#include "shapes_quick.hpp"

namespace rooflane {

namespace {

struct Preset {
  const char* name;
  const char* text;
};
constexpr std::array presets = {Preset{"default", shapes_default}, Preset{"quick", shapes_quick},
                                Preset{"edge", shapes_edge}, Preset{"crossover", shapes_crossover}};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

std::vector<BenchProblem> preset_problems(std::string_view name,
                                          std::span<const Kernel* const> kernels) {
  const auto preset = std::find_if(presets.begin(), presets.end(),
                                   [&](const Preset& known) { return name == known.name; });
  if (preset == presets.end()) throw argument_error(unknown_name("preset", name, preset_names()));
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
