// RMSNorm in double precision, plain, and the room's record. See rmsnorm.hpp for the maths.
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/text.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

namespace rooflane::rmsnorm {
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
  std::vector<TensorSpec> list = {
      {.name = "x", .role = Role::input, .axes = matrix, .dtype = type},
      {.name = "gamma", .role = Role::input, .axes = {{"cols"}}, .dtype = type, .reach = 0},
      {.name = "y", .role = Role::output, .axes = matrix, .dtype = type, .like = "x"}};
  if (problem.flag("residual")) {
    list.insert(list.begin() + 1,
                {.name = "residual", .role = Role::input, .axes = matrix, .dtype = type});
  }
  return list;
}

// An element's 4 flops: the sum of squares as multiply-adds, two products.
Cost cost(const Problem& problem) {
  const double elements = problem.value("rows") * problem.value("cols");
  const double sums = problem.flag("residual") ? elements : 0;
  return {.flops = 4 * elements + sums,
          .bytes = traffic_bytes(problem),
          .fma_flops = 2 * elements,
          .unfused_flops = 2 * elements + sums};
}

void check(const Problem& problem) {
  const double eps = problem.value("eps");
  if (std::isfinite(eps) && eps >= 0) return;
  throw argument_error("eps=" + print_real(eps) + ": allowed is a finite number, 0 or more");
}

// A row of x, or of x + residual: a sum that variants round once.
struct Row {
  std::vector<double> x;
  double root;  // of the mean square and eps
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
  double squares = 0;
  for (std::int64_t j = 0; j < cols; ++j) {
    squares += static_cast<double>(elements[j]) * elements[j];
  }
  const double root = std::sqrt(squares / static_cast<double>(cols) + problem.value("eps"));
  return {std::move(elements), root};
}

// Relative errors: what a careful sum keeps, and what a plain one may lose.
struct Bounds {
  double careful, plain;
  // With a residual every x is a sum rounded once, which moves the element and the root.
  Bounds(std::int64_t cols, double u, bool residual)
      : careful((8 + std::sqrt(static_cast<double>(cols)) + (residual ? 2 : 0)) * u),
        plain(careful + plain_sum_error(static_cast<double>(cols), u)) {}
};

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const float* gamma = inputs.at("gamma").f32();
  const Bounds bounds(problem.size("cols"), math.sums->unit_roundoff, problem.flag("residual"));
  std::size_t at = 0;
  for (const std::int64_t r : region.rows) {
    const Row row = row_of(problem, inputs, r);
    for (const std::int64_t j : region.cols) {
      out.value[at] = row.x[j] / row.root * gamma[j];
      out.bound[at] = bounds.careful * std::abs(out.value[at]) + smallest_normal;
      out.plain_bound[at] = bounds.plain * std::abs(out.value[at]) + smallest_normal;
      ++at;
    }
  }
}

// Some elements of every row, seeded for each.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const float* gamma = operands.at("gamma").f32();
  const View& output = operands.at("y");
  const DType type = problem.dtype("type");
  const double rounding = output_roundoff(type);
  const std::int64_t cols = problem.size("cols");
  const Bounds bounds(cols, math.sums->unit_roundoff, problem.flag("residual"));
  WholeError worst;
  for (std::int64_t r = 0; r < problem.size("rows"); ++r) {
    const Row row = row_of(problem, operands, r);
    const float* y = output.f32() + r * output.strides[0];
    for (std::uint64_t k = 0; k < elements_checked_per_row; ++k) {
      const std::uint64_t random = splitmix64(seed + static_cast<std::uint64_t>(r) + (k << 48));
      const auto j = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(cols));
      const double expected = row.x[j] / row.root * gamma[j];
      if (std::isnan(expected) && std::isnan(y[j])) continue;
      const double size = std::abs(expected),
                   rounded = rounding * size + type->smallest / 2 + smallest_normal;
      common::note_error(std::abs(y[j] - expected), bounds.careful * size + rounded,
                         bounds.plain * size + rounded, worst);
    }
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "rmsnorm",
    .summary =
        "y = x / sqrt(mean(x * x) + eps) * gamma over the last axis; with residual=1 of "
        "x + residual",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .in_place_input = "x",
    .whole_check = whole_check,
};

}  // namespace rooflane::rmsnorm
