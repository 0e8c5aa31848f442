// Shape presets: lists of problems as data (bench/shapes/*.txt), embedded in the program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.hpp"

namespace rooflane {

std::vector<std::string> preset_names();

// The problems of a preset that belong to one of `kernels`. Throws Error for an unknown name, with
// the nearest one.
std::vector<BenchProblem> preset_problems(std::string_view name,
                                          std::span<const Kernel* const> kernels);

}  // namespace rooflane
