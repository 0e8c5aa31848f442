// What the references of LayerNorm and RMSNorm share: parameters, tensors, and rows in double
// precision, plain. RMSNorm is LayerNorm without the mean and beta.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/text.hpp"
#include "kernels/common/whole_error.hpp"

namespace rooflane::common {

inline constexpr ParamSpec norm_params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "eps", .kind = ParamKind::real, .default_value = 1e-5},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
    {.name = "residual", .kind = ParamKind::flag},
};

template <bool kCentred>
std::vector<TensorSpec> norm_tensors(const Problem& problem) {
  const DType type = problem.dtype("type");
  const std::vector<Axis> matrix = {{"rows", Axis::Form::leading}, {"cols"}};
  std::vector<TensorSpec> list = {
      {.name = "x", .role = Role::input, .axes = matrix, .dtype = type}};
  if (problem.flag("residual")) {
    list.push_back({.name = "residual", .role = Role::input, .axes = matrix, .dtype = type});
  }
  list.push_back(
      {.name = "gamma", .role = Role::input, .axes = {{"cols"}}, .dtype = type, .reach = 0});
  if (kCentred) {
    list.push_back(
        {.name = "beta", .role = Role::input, .axes = {{"cols"}}, .dtype = type, .reach = 0});
  }
  list.push_back({.name = "y", .role = Role::output, .axes = matrix, .dtype = type, .like = "x"});
  return list;
}

inline void check_norm(const Problem& problem) {
  const double eps = problem.value("eps");
  if (std::isfinite(eps) && eps >= 0) return;
  throw argument_error("eps=" + print_real(eps) + ": allowed is a finite number, 0 or more");
}

// Multiply-adds and other operations of an element; the sum with a residual is one more.
inline Cost norm_cost(const Problem& problem, double fma, double unfused) {
  const double elements = problem.value("rows") * problem.value("cols");
  const double sums = problem.flag("residual") ? elements : 0;
  return {.flops = (2 * fma + unfused) * elements + sums,
          .bytes = traffic_bytes(problem),
          .fma_flops = 2 * fma * elements,
          .unfused_flops = unfused * elements + sums};
}

// A row of x, or of x + residual: a sum that variants round once.
struct NormRow {
  std::vector<double> x;
  double mean;
  double sigma;  // root of the mean square about the mean, and eps
  bool is_sum;
};

template <bool kCentred>
NormRow norm_row(const Problem& problem, const Operands& inputs, std::int64_t row) {
  const auto read = [&](const char* name) {
    const View& view = inputs.at(name);
    const float* first = view.f32() + row * view.strides[0];
    return std::vector<double>(first, first + problem.size("cols"));
  };
  std::vector<double> x = read("x");
  const bool is_sum = problem.flag("residual");
  if (is_sum) {
    const std::vector<double> residual = read("residual");
    for (std::size_t j = 0; j < x.size(); ++j) x[j] += residual[j];
  }
  const auto count = static_cast<double>(x.size());
  double mean = 0;
  if constexpr (kCentred) {
    for (const double value : x) mean += value;
    mean /= count;
    // What the sum lost, so that a row of one number has that mean and no variance.
    double lost = 0;
    for (const double value : x) lost += value - mean;
    mean += lost / count;
  }
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  const double sigma = std::sqrt(squares / count + problem.value("eps"));
  return {std::move(x), mean, sigma, is_sum};
}

struct NormElement {
  double value, bound, plain_bound;
};

// expected(row, j): element j of a row, of the room.
template <bool kCentred, class Expected>
void norm_reference(const Problem& problem, const Operands& inputs, const Region& region,
                    const ReferenceOut& out, const Expected& expected) {
  std::size_t at = 0;
  for (const std::int64_t r : region.rows) {
    const NormRow row = norm_row<kCentred>(problem, inputs, r);
    for (const std::int64_t j : region.cols) {
      const NormElement element = expected(row, j);
      out.value[at] = element.value;
      out.bound[at] = element.bound;
      out.plain_bound[at] = element.plain_bound;
      ++at;
    }
  }
}

// Some elements of every row, seeded for each. The sums of a row take most of its reference's time,
// but no memory: a reference for all rows holds 16 bytes an element.
template <bool kCentred, class Expected>
WholeError norm_whole_check(const Problem& problem, const Operands& operands, std::uint64_t seed,
                            const Expected& expected) {
  constexpr std::uint64_t elements_checked_per_row = 4;
  const View& output = operands.at("y");
  const DType type = problem.dtype("type");
  const double rounding = output_roundoff(type);
  const auto cols = static_cast<std::uint64_t>(problem.size("cols"));
  WholeError worst;
  for (std::int64_t r = 0; r < problem.size("rows"); ++r) {
    const NormRow row = norm_row<kCentred>(problem, operands, r);
    const float* y = output.f32() + r * output.strides[0];
    for (std::uint64_t k = 0; k < elements_checked_per_row; ++k) {
      const std::uint64_t random = splitmix64(seed + static_cast<std::uint64_t>(r) + (k << 48));
      const auto j = static_cast<std::int64_t>(random % cols);
      const NormElement element = expected(row, j);
      if (std::isnan(element.value) && std::isnan(y[j])) continue;
      const double rounded = rounding * std::abs(element.value) + type->smallest / 2;
      note_error(std::abs(y[j] - element.value), element.bound + rounded,
                 element.plain_bound + rounded, worst);
    }
  }
  return worst;
}

// The record of a kernel. kElements(math, inputs) computes y and its bound from a row and a column.
template <bool kCentred, auto kElements>
constexpr Kernel norm_kernel(const char* name, const char* summary, decltype(Kernel::cost) cost) {
  return {.name = name,
          .summary = summary,
          .params = norm_params,
          .tensors = norm_tensors<kCentred>,
          .cost = cost,
          .check = check_norm,
          .reference =
              [](const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
                 const Region& region, const ReferenceOut& out) {
                norm_reference<kCentred>(problem, inputs, region, out, kElements(math, inputs));
              },
          .in_place_input = "x",
          .whole_check =
              [](const Problem& problem, const Math& math, const Operands& operands,
                 std::uint64_t seed) {
                return norm_whole_check<kCentred>(problem, operands, seed,
                                                  kElements(math, operands));
              }};
}

}  // namespace rooflane::common
