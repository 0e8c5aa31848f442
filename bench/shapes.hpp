// Shape presets: lists of problems as data (bench/shapes/*.txt), embedded in the program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.hpp"

namespace rooflane {

std::vector<std::string> preset_names();

// Whether the name is that of a preset, or begins with `random:` or `formats:`.
bool is_preset(std::string_view name);

// The problems of a preset that belong to one of `kernels`. `random:N`, `random:N:SEED` and
// `random:N:SEED:LARGEST` name N drawn ones of each kernel, `formats:…` such with number formats
// and epilogues (random_problems.hpp). Throws Error for an unknown name, with the nearest one, and
// for numbers out of range.
std::vector<BenchProblem> preset_problems(std::string_view name,
                                          std::span<const Kernel* const> kernels);

// The same of a preset's text, a shape a line and `#` before remarks; lines of other kernels are
// passed over. Throws Error for a shape that does not parse.
std::vector<BenchProblem> parse_preset(std::string_view text, std::string_view name,
                                       std::span<const Kernel* const> kernels);

}  // namespace rooflane
