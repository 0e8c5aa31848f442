// LayerNorm in double precision, plain, and the room's record. See layernorm.hpp for the maths.
#include <cmath>

#include "core/error.hpp"
#include "core/text.hpp"
#include "generated_catalogue.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {
namespace {

constexpr double u = 0x1p-24;

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "eps", .kind = ParamKind::real, .default_value = 1e-5},
};

std::vector<TensorSpec> tensors(const Problem&) {
  const std::vector<Axis> matrix = {{"rows", Axis::Form::leading}, {"cols"}};
  const std::vector<Axis> vector = {{"cols"}};
  return {{.name = "x", .role = Role::input, .axes = matrix},
          {.name = "gamma", .role = Role::input, .axes = vector},
          {.name = "beta", .role = Role::input, .axes = vector},
          {.name = "y", .role = Role::output, .axes = matrix, .like = "x"}};
}

Cost cost(const Problem& problem) {
  const double cols = problem.value("cols");
  const double elements = problem.value("rows") * cols;
  return {.flops = 7 * elements, .bytes = 8 * elements + 8 * cols};
}

void check(const Problem& problem) {
  const double eps = problem.value("eps");
  if (std::isfinite(eps) && eps >= 0) return;
  throw argument_error("eps=" + print_real(eps) + ": allowed is a finite number, 0 or more");
}

void reference(const Problem& problem, const Operands& inputs, const Region& region, double* value,
               double* bound) {
  const View& x = inputs.at("x");
  const float* gamma = inputs.at("gamma").f32();
  const float* beta = inputs.at("beta").f32();
  const std::int64_t cols = problem.size("cols");
  const double eps = problem.value("eps");
  const double roundings = (8 + std::sqrt(static_cast<double>(cols))) * u;
  for (std::int64_t row : region.rows) {
    const float* elements = x.f32() + row * x.strides[0];
    double sum = 0;
    for (std::int64_t j = 0; j < cols; ++j) sum += elements[j];
    const double mean = sum / static_cast<double>(cols);
    double squares = 0;
    for (std::int64_t j = 0; j < cols; ++j) {
      squares += (elements[j] - mean) * (elements[j] - mean);
    }
    const double sigma = std::sqrt(squares / static_cast<double>(cols) + eps);
    for (std::int64_t j : region.cols) {
      const double centred = elements[j] - mean;
      *value = centred / sigma * gamma[j] + beta[j];
      *bound = roundings * (std::abs(gamma[j]) * (std::abs(centred) + std::abs(mean)) / sigma +
                            std::abs(beta[j]));
      ++value;
      ++bound;
    }
  }
}

}  // namespace

const Kernel kernel = {
    .name = "layernorm",
    .summary = "y = (x - mean) / sqrt(var + eps) * gamma + beta over the last axis",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .in_place_input = "x",
};

}  // namespace rooflane::layernorm
