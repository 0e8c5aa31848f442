// Softmax in double precision, plain, and the room's record. See softmax.hpp for the maths.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/seeds.hpp"

#include "generated_catalogue.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

constexpr double u = 0x1p-24;
constexpr double smallest_normal = 0x1p-126;
constexpr std::uint64_t elements_checked_per_row = 4;

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
};

std::vector<TensorSpec> tensors(const Problem&) {
  const std::vector<Axis> axes = {{"rows", Axis::Form::leading}, {"cols"}};
  return {{.name = "x", .role = Role::input, .axes = axes, .seed_scale = 8},
          {.name = "y", .role = Role::output, .axes = axes, .like = "x"}};
}

// An element's 5 flops: exp, and unfused the maximum, the difference to it, the sum, the scaling.
Cost cost(const Problem& problem) {
  const double elements = problem.value("rows") * problem.value("cols");
  return {.flops = 5 * elements,
          .exps = elements,
          .bytes = 8 * elements,
          .unfused_flops = 4 * elements};
}

// A NaN is never the maximum here; it comes back through the sum.
double max_of_row(const float* x, std::int64_t cols) {
  double max = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < cols; ++j) max = x[j] > max ? x[j] : max;
  return max;
}

void reference(const Problem& problem, const Operands& inputs, const Region& region, double* value,
               double* bound) {
  const View& x = inputs.at("x");
  const std::int64_t cols = problem.size("cols");
  for (std::int64_t row : region.rows) {
    const float* elements = x.f32() + row * x.strides[0];
    const double max = max_of_row(elements, cols);
    double sum = 0;
    for (std::int64_t j = 0; j < cols; ++j) sum += std::exp(elements[j] - max);
    for (std::int64_t j : region.cols) {
      *value = std::exp(elements[j] - max) / sum;
      // -inf has the weight zero exactly, which needs no allowance of its own.
      const double below = std::isfinite(elements[j]) ? max - elements[j] : 0;
      *bound = (8 + below) * u * *value + smallest_normal;
      ++value;
      ++bound;
    }
  }
}

// Two checks of every row. The sum: in exact arithmetic it is 1, and the elements' bounds added up,
// with the computed y for the exact one, bound its error. Some elements seeded for each row:
// y_i = exp(x_i - max)·y at the maximum, within the bounds of both. A row that holds NaN or +inf,
// or nothing but -inf, must be NaN throughout.
double whole_check(const Problem& problem, const Operands& inputs, const View& output,
                   std::uint64_t seed) {
  const View& x = inputs.at("x");
  const std::int64_t rows = problem.size("rows");
  const std::int64_t cols = problem.size("cols");
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* elements = x.f32() + row * x.strides[0];
    const float* y = output.f32() + row * output.strides[0];
    const double max = max_of_row(elements, cols);
    bool has_nan = !std::isfinite(max);
    double sum = 0;
    double bound = static_cast<double>(cols) * smallest_normal;
    for (std::int64_t j = 0; j < cols; ++j) {
      has_nan = has_nan || std::isnan(elements[j]);
      sum += y[j];
      if (std::isfinite(elements[j])) bound += (8 + (max - elements[j])) * u * std::abs(y[j]);
    }
    if (has_nan) {
      for (std::int64_t j = 0; j < cols; ++j) {
        if (!std::isnan(y[j])) return std::numeric_limits<double>::infinity();
      }
      continue;
    }
    const auto note = [&](double ratio) {
      if (!(ratio <= worst)) worst = ratio;  // NaN counts as worst
    };
    note(std::abs(sum - 1) / bound);
    const double y_of_max = y[std::find(elements, elements + cols, max) - elements];
    for (std::uint64_t k = 0; k < elements_checked_per_row; ++k) {
      const std::uint64_t random = splitmix64(seed + static_cast<std::uint64_t>(row) + (k << 48));
      const auto j = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(cols));
      const double below = max - elements[j];
      const double expected = std::exp(-below) * y_of_max;
      const double weight = std::isfinite(below) ? 16 + below : 16;
      note(std::abs(y[j] - expected) / (weight * u * expected + 2 * smallest_normal));
    }
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
