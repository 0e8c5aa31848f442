// LayerNorm in double precision, plain, and the room's record. See layernorm.hpp for the maths.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/text.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {
namespace {

constexpr double smallest_normal = 0x1p-126;
constexpr std::uint64_t elements_checked_per_row = 4;

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "eps", .kind = ParamKind::real, .default_value = 1e-5},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
    {.name = "residual", .kind = ParamKind::flag},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const DType type = problem.dtype("type");
  const std::vector<Axis> matrix = {{"rows", Axis::Form::leading}, {"cols"}};
  const std::vector<Axis> vector = {{"cols"}};
  std::vector<TensorSpec> list = {
      {.name = "x", .role = Role::input, .axes = matrix, .dtype = type},
      {.name = "gamma", .role = Role::input, .axes = vector, .dtype = type},
      {.name = "beta", .role = Role::input, .axes = vector, .dtype = type},
      {.name = "y", .role = Role::output, .axes = matrix, .dtype = type, .like = "x"}};
  if (problem.flag("residual")) {
    list.insert(list.begin() + 1,
                {.name = "residual", .role = Role::input, .axes = matrix, .dtype = type});
  }
  return list;
}

// An element's 7 flops: unfused the sum for the mean, the difference to it and the product with
// 1/σ; as multiply-adds the sum of squares and ·gamma + beta.
Cost cost(const Problem& problem) {
  const double cols = problem.value("cols");
  const double elements = problem.value("rows") * cols;
  const double sums = problem.flag("residual") ? elements : 0;
  return {.flops = 7 * elements + sums,
          .bytes = traffic_bytes(problem),
          .fma_flops = 4 * elements,
          .unfused_flops = 3 * elements + sums};
}

void check(const Problem& problem) {
  const double eps = problem.value("eps");
  if (std::isfinite(eps) && eps >= 0) return;
  throw argument_error("eps=" + print_real(eps) + ": allowed is a finite number, 0 or more");
}

// A row of x, or of x + residual: a sum that variants round once.
struct Row {
  std::vector<double> x;
  double mean;
  double sigma;
  double sum_roundings;  // of x + residual, in units of u
};

std::vector<double> elements_of(const Problem& problem, const Operands& inputs, std::int64_t row) {
  const auto read = [&](const char* name) {
    const View& view = inputs.at(name);
    const float* first = view.f32() + row * view.strides[0];
    return std::vector<double>(first, first + problem.size("cols"));
  };
  std::vector<double> elements = read("x");
  if (!problem.flag("residual")) return elements;
  const std::vector<double> residual = read("residual");
  for (std::size_t j = 0; j < elements.size(); ++j) elements[j] += residual[j];
  return elements;
}

Row row_of(const Problem& problem, const Operands& inputs, std::int64_t row) {
  const std::int64_t cols = problem.size("cols");
  std::vector<double> elements = elements_of(problem, inputs, row);
  double sum = 0;
  for (std::int64_t j = 0; j < cols; ++j) sum += elements[j];
  const double mean = sum / static_cast<double>(cols);
  double squares = 0;
  for (std::int64_t j = 0; j < cols; ++j) squares += (elements[j] - mean) * (elements[j] - mean);
  const double sigma = std::sqrt(squares / static_cast<double>(cols) + problem.value("eps"));
  const double rounded = problem.flag("residual") ? 3 : 0;
  return {std::move(elements), mean, sigma, rounded};
}

struct Expected {
  double value;
  double bound;
  double plain_bound;
};

Expected element(const Row& row, std::int64_t cols, std::int64_t j, double gamma, double beta,
                 double u) {
  const double centred = row.x[j] - row.mean;
  const double roundings = (8 + std::sqrt(static_cast<double>(cols))) * u;
  const double scale =
      std::abs(gamma) * (std::abs(centred) + std::abs(row.mean)) / row.sigma + std::abs(beta);
  const double plain = plain_sum_error(static_cast<double>(cols), u);
  const double flushed = smallest_normal * std::max(std::abs(gamma), 1.0);
  // Each |x| is at most |x - mean| + |mean|, their mean at most sigma + |mean|.
  const double of_sums = row.sum_roundings * u * std::abs(gamma) *
                         (std::abs(centred) + std::abs(row.mean) + row.sigma) / row.sigma;
  return {centred / row.sigma * gamma + beta, roundings * scale + of_sums + flushed,
          (roundings + plain) * scale + of_sums + flushed};
}

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const float* gamma = inputs.at("gamma").f32();
  const float* beta = inputs.at("beta").f32();
  const std::int64_t cols = problem.size("cols");
  std::size_t at = 0;
  for (std::int64_t r : region.rows) {
    const Row row = row_of(problem, inputs, r);
    for (std::int64_t j : region.cols) {
      const Expected expected = element(row, cols, j, gamma[j], beta[j], math.sums->unit_roundoff);
      out.value[at] = expected.value;
      out.bound[at] = expected.bound;
      out.plain_bound[at] = expected.plain_bound;
      ++at;
    }
  }
}

// Some elements of every row, seeded for each. The moments of a row take most of its reference's
// time, but no memory: a reference for all rows holds 16 bytes an element.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const float* gamma = operands.at("gamma").f32();
  const float* beta = operands.at("beta").f32();
  const View& output = operands.at("y");
  const DType type = problem.dtype("type");
  const double rounding = output_roundoff(type);
  const std::int64_t rows = problem.size("rows");
  const std::int64_t cols = problem.size("cols");
  WholeError worst;
  for (std::int64_t r = 0; r < rows; ++r) {
    const Row row = row_of(problem, operands, r);
    const float* y = output.f32() + r * output.strides[0];
    for (std::uint64_t k = 0; k < elements_checked_per_row; ++k) {
      const std::uint64_t random = splitmix64(seed + static_cast<std::uint64_t>(r) + (k << 48));
      const auto j = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(cols));
      const Expected expected = element(row, cols, j, gamma[j], beta[j], math.sums->unit_roundoff);
      if (std::isnan(expected.value) && std::isnan(y[j])) continue;
      const double error = std::abs(y[j] - expected.value);
      const double rounded = rounding * std::abs(expected.value) + type->smallest / 2;
      common::note_error(error, expected.bound + rounded, expected.plain_bound + rounded, worst);
    }
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "layernorm",
    .summary =
        "y = (x - mean) / sqrt(var + eps) * gamma + beta over the last axis; with "
        "residual=1 of x + residual",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .in_place_input = "x",
    .whole_check = whole_check,
};

}  // namespace rooflane::layernorm
