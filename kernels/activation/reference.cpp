// Activation functions in double precision, plain, and the room's record. See activation.hpp for
// the maths.
#include <cmath>

#include "core/seeds.hpp"
#include "generated_catalogue.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/common/whole_error.hpp"

namespace rooflane::activation {
namespace {

using common::Expected;
using common::smallest_normal;

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "kind", .kind = ParamKind::choice, .required = true, .words = kinds},
    {.name = "gate", .kind = ParamKind::flag},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
};

// x reaches where the functions are nearly 0 and nearly x.
std::vector<TensorSpec> tensors(const Problem& problem) {
  const DType type = problem.dtype("type");
  const std::vector<Axis> axes = {{"rows", Axis::Form::leading}, {"cols"}};
  // The product with the gate is twice as long an exponent.
  const int reach = problem.flag("gate") ? reach_below(type, 0) / 2 : whole_reach;
  std::vector<TensorSpec> specs = {{.name = "x",
                                    .role = Role::input,
                                    .axes = axes,
                                    .dtype = type,
                                    .seed_scale = 8,
                                    .reach = reach}};
  if (problem.flag("gate")) {
    specs.push_back(
        {.name = "g", .role = Role::input, .axes = axes, .dtype = type, .reach = reach});
  }
  specs.push_back({.name = "y", .role = Role::output, .axes = axes, .dtype = type, .like = "x"});
  return specs;
}

Cost cost(const Problem& problem) {
  constexpr double flops_of[] = {1, 5, 9, 4, 1};  // as Kind
  const Kind kind = kind_of(problem);
  const double elements = problem.value("rows") * problem.value("cols");
  const double flops = flops_of[static_cast<int>(kind)] + (problem.flag("gate") ? 1 : 0);
  const double exps = kind == Kind::relu ? 0 : 1;
  return {.flops = flops * elements,
          .exps = exps * elements,
          .bytes = traffic_bytes(problem),
          .unfused_flops = (flops - exps) * elements};
}

// The kernel's operands, and what an element of y should be.
struct Elements {
  Kind kind;
  const View& x;
  const View* gate;
  double u;

  Elements(const Problem& problem, const Math& math, const Operands& operands)
      : kind(kind_of(problem)),
        x(operands.at("x")),
        gate(problem.flag("gate") ? &operands.at("g") : nullptr),
        u(math.sums->unit_roundoff) {}

  Expected at(std::int64_t row, std::int64_t col) const {
    Expected y = common::activated(kind, x.f32()[row * x.strides[0] + col], u);
    if (gate != nullptr) {
      const double g = gate->f32()[row * gate->strides[0] + col];
      y.value *= g;
      const double product = u * std::abs(y.value);
      y.bound = y.bound * std::abs(g) + product;
      y.plain_bound = y.plain_bound * std::abs(g) + product;
    }
    return {y.value, y.bound + smallest_normal, y.plain_bound + smallest_normal};
  }
};

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Elements elements(problem, math, inputs);
  std::size_t at = 0;
  for (const std::int64_t row : region.rows) {
    for (const std::int64_t col : region.cols) {
      const Expected expected = elements.at(row, col);
      out.value[at] = expected.value;
      out.bound[at] = expected.bound;
      out.plain_bound[at] = expected.plain_bound;
      ++at;
    }
  }
}

// Elements seeded for each row: four, and one of each 1024.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const Elements elements(problem, math, operands);
  const View& output = operands.at("y");
  const DType type = problem.dtype("type");
  const double rounding = output_roundoff(type);
  const std::int64_t cols = problem.size("cols");
  const auto checked = static_cast<std::uint64_t>(4 + cols / 1024);
  WholeError worst;
  for (std::int64_t r = 0; r < problem.size("rows"); ++r) {
    const float* y = output.f32() + r * output.strides[0];
    const std::uint64_t of_row = splitmix64(seed + static_cast<std::uint64_t>(r));
    for (std::uint64_t k = 0; k < checked; ++k) {
      const auto j =
          static_cast<std::int64_t>(splitmix64(of_row + k) % static_cast<std::uint64_t>(cols));
      const Expected expected = elements.at(r, j);
      if (y[j] == expected.value || (std::isnan(expected.value) && std::isnan(y[j]))) continue;
      const double rounded = rounding * std::abs(expected.value) + type->smallest / 2;
      common::note_error(std::abs(y[j] - expected.value), expected.bound + rounded,
                         expected.plain_bound + rounded, worst);
    }
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "activation",
    .summary = "y = f(x) for f of relu, gelu, gelu_tanh, silu, tanh; with gate=1 f(x) * g",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = nullptr,
    .reference = reference,
    .in_place_input = "x",
    .whole_check = whole_check,
};

}  // namespace rooflane::activation
