// Problems as text, ranges among them: what is accepted prints as a text that reads back as the
// same problem, with a cost and tensors.
#include <algorithm>
#include <cmath>

#include "core/kernel.hpp"
#include "core/tensor.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

void shapes_target(std::string_view input) {
  constexpr std::size_t most_read_back = 16;  // of ten thousand that a range may name
  const std::vector<Problem> problems = parse_shapes(input, all_kernels());
  for (std::size_t i = 0; i < std::min(problems.size(), most_read_back); ++i) {
    const Problem& problem = problems[i];
    const Problem same = parse_problem(problem.text(), all_kernels());
    require(same.text() == problem.text());
    require(std::isfinite(problem.kernel().cost(problem).flops));
    for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
      require(contiguous_view(nullptr, tensor_shape(problem, tensor), tensor.dtype).elements() >=
              0);
    }
  }
}

}  // namespace rooflane::fuzz
