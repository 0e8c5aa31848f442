// Softmax in double precision, plain, and the room's record. See softmax.hpp for the maths.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/seeds.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

constexpr double smallest_normal = 0x1p-126;
constexpr std::uint64_t elements_checked_per_row = 4;

double rows_of(const Problem& problem) { return std::max(problem.value("rows"), 1.0); }

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
    {.name = "scale", .kind = ParamKind::real, .default_value = 1},
    {.name = "mask", .kind = ParamKind::flag},
    {.name = "mask_rows", .kind = ParamKind::size, .least = 1, .default_from = rows_of},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const DType type = problem.dtype("type");
  const std::vector<Axis> axes = {{"rows", Axis::Form::leading}, {"cols"}};
  // scale·x + mask is a float32 number.
  const double scale = std::max(1.0, std::abs(problem.value("scale")));
  const int reach = reach_below(type, std::ilogb(scale) + (problem.flag("mask") ? 2 : 1));
  std::vector<TensorSpec> list = {
      {.name = "x",
       .role = Role::input,
       .axes = axes,
       .dtype = type,
       .seed_scale = 8,
       .reach = scale > 1 || problem.flag("mask") ? reach : whole_reach}};
  if (problem.flag("mask")) {
    list.push_back({.name = "mask",
                    .role = Role::input,
                    .axes = {{"mask_rows", Axis::Form::leading}, {"cols"}},
                    .dtype = type,
                    .reach = reach});
  }
  list.push_back({.name = "y", .role = Role::output, .axes = axes, .dtype = type, .like = "x"});
  return list;
}

// An element's 5 flops: exp, and unfused the maximum, the difference to it, the sum, the scaling. A
// scale and a mask are one more each.
Cost cost(const Problem& problem) {
  const double elements = problem.value("rows") * problem.value("cols");
  const double options = (problem.value("scale") != 1 ? 1 : 0) + (problem.flag("mask") ? 1 : 0);
  return {.flops = (5 + options) * elements,
          .exps = elements,
          .bytes = traffic_bytes(problem),
          .unfused_flops = (4 + options) * elements};
}

void check(const Problem& problem) {
  const double scale = problem.value("scale");
  if (!std::isfinite(static_cast<float>(scale))) {
    throw argument_error(fmt::format("scale={}: allowed is a finite number", scale));
  }
  const std::int64_t rows = problem.size("rows"), mask_rows = problem.size("mask_rows");
  if (!problem.flag("mask") || rows % mask_rows == 0) return;
  throw argument_error(
      fmt::format("mask_rows={}: allowed are divisors of rows={}", mask_rows, rows));
}

// Rows of S·x + mask as exact numbers, and what forming them may err by.
class Scores {
 public:
  Scores(const Problem& problem, const Operands& inputs, double u)
      : x_(inputs.at("x")),
        cols_(problem.size("cols")),
        mask_rows_(problem.size("mask_rows")),
        scale_(static_cast<float>(problem.value("scale"))),
        u_(u) {
    if (problem.flag("mask")) mask_ = &inputs.at("mask");
    exact_ = mask_ == nullptr && scale_ == 1;
    values.resize(static_cast<std::size_t>(cols_));
    errors.resize(values.size());
  }

  void read(std::int64_t row) {
    const float* const x = x_.f32() + row * x_.strides[0];
    const float* const mask =
        mask_ == nullptr ? nullptr : mask_->f32() + row % mask_rows_ * mask_->strides[0];
    for (std::size_t j = 0; j < values.size(); ++j) {
      const double scaled = double{scale_} * x[j];
      values[j] = mask == nullptr ? scaled : scaled + mask[j];
      const double error = 2 * u_ * (std::abs(scaled) + std::abs(values[j]));
      errors[j] = exact_ || !std::isfinite(error) ? 0 : error;
    }
  }

  std::vector<double> values, errors;

 private:
  const View& x_;
  const View* mask_ = nullptr;
  std::int64_t cols_, mask_rows_;
  float scale_;
  double u_;
  bool exact_ = true;
};

// A NaN is never the maximum here; it comes back through the sum.
double max_of_row(const std::vector<double>& x) {
  double max = -std::numeric_limits<double>::infinity();
  for (const double value : x) max = value > max ? value : max;
  return max;
}

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const double u = math.sums->unit_roundoff;
  const double plain = plain_sum_error(problem.value("cols"), u);
  Scores scores(problem, inputs, u);
  const std::vector<double>& elements = scores.values;
  std::size_t at = 0;
  for (std::int64_t row : region.rows) {
    scores.read(row);
    const double max = max_of_row(elements);
    // The sum of the terms, and the least and the most that errors of the scores make of it.
    double sum = 0, least = 0, most = 0;
    for (std::size_t j = 0; j < elements.size(); ++j) {
      const double term = std::exp(elements[j] - max), error = scores.errors[j];
      sum += term;
      least += error == 0 ? term : std::exp(elements[j] - max - error);
      most += error == 0 ? term : std::exp(elements[j] - max + error);
    }
    for (std::int64_t col : region.cols) {
      const auto j = static_cast<std::size_t>(col);
      const double y = std::exp(elements[j] - max) / sum;
      // -inf has the weight zero exactly, which needs no allowance of its own.
      const double below = std::isfinite(elements[j]) ? max - elements[j] : 0;
      out.value[at] = y;
      // An exponent's error may be large, where S·x is: then y may be anything from 0 to 1.
      const double error = scores.errors[j];
      const double high = std::min(1.0, std::exp(error - below) / least);
      const double low = std::exp(-error - below) / most;
      const double of_scores = std::isfinite(elements[j]) ? std::max(high - y, y - low) : 0;
      out.bound[at] = (8 + below) * u * y + of_scores + smallest_normal;
      out.plain_bound[at] = out.bound[at] + plain * y;
      ++at;
    }
  }
}

// One row of x and y for the checks below.
struct Row {
  const Scores& scores;
  const float* y;
  double max;
  const std::vector<double>& x() const { return scores.values; }
};

bool holds_nan(const Row& row) {
  return !std::isfinite(row.max) ||
         std::any_of(row.x().begin(), row.x().end(), [](double x) { return std::isnan(x); });
}

// Relative and, near zero, absolute error of rounding y to its format.
struct Rounding {
  double relative, absolute;
};

// In exact arithmetic the sum is 1; the elements' bounds added up, with the computed y for the
// exact one, bound its error. `u`: roundoff of the computation.
void check_sum(const Row& row, double u, const Rounding& rounding, WholeError& worst) {
  double sum = 0;
  const auto cols = static_cast<double>(row.x().size());
  double bound = cols * (smallest_normal + rounding.absolute);
  for (std::size_t j = 0; j < row.x().size(); ++j) {
    sum += row.y[j];
    if (!std::isfinite(row.x()[j])) continue;
    const double own = (8 + (row.max - row.x()[j])) * u + 2 * row.scores.errors[j];
    bound += (own + rounding.relative) * std::abs(row.y[j]);
  }
  const double error = std::abs(sum - 1);
  const double plain = bound + plain_sum_error(cols, u);
  common::note_error(error, bound, plain, worst);
}

// Some elements seeded for each row: y_i = exp(x_i - max)·y at the maximum, within the bounds of
// both. Both have the same sum, so that its error takes no part.
void check_elements(const Row& row, double u, const Rounding& rounding, std::uint64_t seed,
                    WholeError& worst) {
  const auto of_max = static_cast<std::size_t>(std::find(row.x().begin(), row.x().end(), row.max) -
                                               row.x().begin());
  const double y_of_max = row.y[of_max];
  for (std::uint64_t k = 0; k < elements_checked_per_row; ++k) {
    const std::uint64_t random = splitmix64(seed + (k << 48));
    const auto j = static_cast<std::size_t>(random % row.x().size());
    const double below = row.max - row.x()[j];
    const double formed = row.scores.errors[j] + row.scores.errors[of_max];
    const double expected = std::exp(-below) * y_of_max;
    const double weight =
        (std::isfinite(below) ? 16 + below : 16) * u + formed + 2 * rounding.relative;
    const double error = std::abs(row.y[j] - expected);
    // Both y were rounded, and that of the maximum counts here by exp(x_i - max), at most once.
    // What errors of both scores make of it at most, which is more where they are large.
    const double high = std::min(1.0, std::exp(formed - below) * y_of_max);
    const double bound = std::max(weight * expected, formed > 0 ? high - expected : 0) +
                         2 * (smallest_normal + rounding.absolute);
    common::note_error(error, bound, bound, worst);
  }
}

// A row that holds NaN or +inf, or nothing but -inf, must be NaN throughout; of others the sum and
// some elements are checked.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const View& y = operands.at("y");
  const DType type = problem.dtype("type");
  const double u = math.sums->unit_roundoff;
  const Rounding rounding = {output_roundoff(type), type->smallest / 2};
  WholeError worst;
  Scores scores(problem, operands, u);
  for (std::int64_t r = 0; r < problem.size("rows"); ++r) {
    scores.read(r);
    const Row row{scores, y.f32() + r * y.strides[0], max_of_row(scores.values)};
    if (holds_nan(row)) {
      constexpr double infinite = std::numeric_limits<double>::infinity();
      const bool all_nan =
          std::all_of(row.y, row.y + row.x().size(), [](float value) { return std::isnan(value); });
      if (!all_nan) return {infinite, infinite};
      continue;
    }
    check_sum(row, u, rounding, worst);
    check_elements(row, u, rounding, seed + static_cast<std::uint64_t>(r), worst);
  }
  return worst;
}

}  // namespace

std::optional<std::string> option_refusal(const Problem& problem) {
  constexpr const char* plain = "this code takes x as it is";
  if (problem.value("scale") != 1) {
    return fmt::format("scale={}: {}", problem.value("scale"), plain);
  }
  if (problem.flag("mask")) return fmt::format("mask=1: {}", plain);
  return std::nullopt;
}

void require_no_options(const Problem& problem, const Tuning& step) {
  if (const auto reason = option_refusal(problem)) {
    throw unavailable_error(fmt::format("{}: {}", step.text(), *reason));
  }
}

const Kernel kernel = {
    .name = "softmax",
    .summary = "y = exp(x - max) / sum(exp(x - max)) over the last axis; of scale * x + mask",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .in_place_input = "x",
    .whole_check = whole_check,
};

}  // namespace rooflane::softmax
