// A list of shapes as text: every problem of it belongs to a known kernel and prints as itself.
#include "bench/shapes.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

void presets_target(std::string_view input) {
  const std::vector<BenchProblem> problems = parse_preset(input, "fuzz", all_kernels());
  if (problems.empty()) return;
  const Problem& last = problems.back().problem;
  require(parse_problem(last.text(), all_kernels()) == last);
}

}  // namespace rooflane::fuzz
