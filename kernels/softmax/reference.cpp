// Softmax in double precision, plain, and the room's record. See softmax.hpp for the maths.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/seeds.hpp"

#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

constexpr double smallest_normal = 0x1p-126;
constexpr std::uint64_t elements_checked_per_row = 4;

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const DType type = problem.dtype("type");
  const std::vector<Axis> axes = {{"rows", Axis::Form::leading}, {"cols"}};
  return {{.name = "x", .role = Role::input, .axes = axes, .dtype = type, .seed_scale = 8},
          {.name = "y", .role = Role::output, .axes = axes, .dtype = type, .like = "x"}};
}

// An element's 5 flops: exp, and unfused the maximum, the difference to it, the sum, the scaling.
Cost cost(const Problem& problem) {
  const double elements = problem.value("rows") * problem.value("cols");
  return {.flops = 5 * elements,
          .exps = elements,
          .bytes = traffic_bytes(problem),
          .unfused_flops = 4 * elements};
}

// A NaN is never the maximum here; it comes back through the sum.
double max_of_row(const float* x, std::int64_t cols) {
  double max = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < cols; ++j) max = x[j] > max ? x[j] : max;
  return max;
}

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const View& x = inputs.at("x");
  const std::int64_t cols = problem.size("cols");
  const double u = math.sums->unit_roundoff;
  const double plain = plain_sum_error(static_cast<double>(cols), u);
  std::size_t at = 0;
  for (std::int64_t row : region.rows) {
    const float* elements = x.f32() + row * x.strides[0];
    const double max = max_of_row(elements, cols);
    double sum = 0;
    for (std::int64_t j = 0; j < cols; ++j) sum += std::exp(elements[j] - max);
    for (std::int64_t j : region.cols) {
      const double y = std::exp(elements[j] - max) / sum;
      // -inf has the weight zero exactly, which needs no allowance of its own.
      const double below = std::isfinite(elements[j]) ? max - elements[j] : 0;
      out.value[at] = y;
      out.bound[at] = (8 + below) * u * y + smallest_normal;
      out.plain_bound[at] = out.bound[at] + plain * y;
      ++at;
    }
  }
}

// One row of x and y for the checks below.
struct Row {
  const float* x;
  const float* y;
  std::int64_t cols;
  double max;
};

bool holds_nan(const Row& row) {
  return !std::isfinite(row.max) ||
         std::any_of(row.x, row.x + row.cols, [](float x) { return std::isnan(x); });
}

// Relative and, near zero, absolute error of rounding y to its format.
struct Rounding {
  double relative, absolute;
};

// In exact arithmetic the sum is 1; the elements' bounds added up, with the computed y for the
// exact one, bound its error. `u`: roundoff of the computation.
void check_sum(const Row& row, double u, const Rounding& rounding, WholeError& worst) {
  double sum = 0;
  double bound = static_cast<double>(row.cols) * (smallest_normal + rounding.absolute);
  for (std::int64_t j = 0; j < row.cols; ++j) {
    sum += row.y[j];
    if (!std::isfinite(row.x[j])) continue;
    bound += ((8 + (row.max - row.x[j])) * u + rounding.relative) * std::abs(row.y[j]);
  }
  const double error = std::abs(sum - 1);
  const double plain = bound + plain_sum_error(static_cast<double>(row.cols), u);
  common::note_error(error, bound, plain, worst);
}

// Some elements seeded for each row: y_i = exp(x_i - max)·y at the maximum, within the bounds of
// both. Both have the same sum, so that its error takes no part.
void check_elements(const Row& row, double u, const Rounding& rounding, std::uint64_t seed,
                    WholeError& worst) {
  const double y_of_max = row.y[std::find(row.x, row.x + row.cols, row.max) - row.x];
  for (std::uint64_t k = 0; k < elements_checked_per_row; ++k) {
    const std::uint64_t random = splitmix64(seed + (k << 48));
    const auto j = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(row.cols));
    const double below = row.max - row.x[j];
    const double expected = std::exp(-below) * y_of_max;
    const double weight = (std::isfinite(below) ? 16 + below : 16) * u + 2 * rounding.relative;
    const double error = std::abs(row.y[j] - expected);
    // Both y were rounded, and that of the maximum counts here by exp(x_i - max), at most once.
    const double bound = weight * expected + 2 * (smallest_normal + rounding.absolute);
    common::note_error(error, bound, bound, worst);
  }
}

// A row that holds NaN or +inf, or nothing but -inf, must be NaN throughout; of others the sum and
// some elements are checked.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const View& x = operands.at("x");
  const View& y = operands.at("y");
  const DType type = problem.dtype("type");
  const double u = math.sums->unit_roundoff;
  const Rounding rounding = {output_roundoff(type), type->smallest / 2};
  WholeError worst;
  for (std::int64_t r = 0; r < problem.size("rows"); ++r) {
    Row row{x.f32() + r * x.strides[0], y.f32() + r * y.strides[0], problem.size("cols"), 0};
    row.max = max_of_row(row.x, row.cols);
    if (holds_nan(row)) {
      constexpr double infinite = std::numeric_limits<double>::infinity();
      const bool all_nan =
          std::all_of(row.y, row.y + row.cols, [](float value) { return std::isnan(value); });
      if (!all_nan) return {infinite, infinite};
      continue;
    }
    check_sum(row, u, rounding, worst);
    check_elements(row, u, rounding, seed + static_cast<std::uint64_t>(r), worst);
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "softmax",
    .summary = "y = exp(x - max) / sum(exp(x - max)) over the last axis",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = nullptr,
    .reference = reference,
    .in_place_input = "x",
    .whole_check = whole_check,
};

}  // namespace rooflane::softmax
