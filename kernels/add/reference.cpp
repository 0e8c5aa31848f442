// Addition in double precision, plain, and the room's record. See add.hpp for the maths.
#include <cmath>

#include "generated_catalogue.hpp"
#include "kernels/add/add.hpp"
#include "kernels/common/whole_error.hpp"

namespace rooflane::add {
namespace {

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "broadcast", .kind = ParamKind::flag},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const DType type = problem.dtype("type");
  const std::vector<Axis> matrix = {{"rows", Axis::Form::leading}, {"cols"}};
  const std::vector<Axis> row = {{"cols"}};
  const int reach = reach_below(type, 1);
  return {{.name = "x", .role = Role::input, .axes = matrix, .dtype = type, .reach = reach},
          {.name = "r",
           .role = Role::input,
           .axes = problem.flag("broadcast") ? row : matrix,
           .dtype = type,
           .reach = reach},
          {.name = "y", .role = Role::output, .axes = matrix, .dtype = type, .like = "x"}};
}

Cost cost(const Problem& problem) {
  const double elements = problem.value("rows") * problem.value("cols");
  return {.flops = elements, .bytes = traffic_bytes(problem), .unfused_flops = elements};
}

// x and r as float32, and how far r's rows are apart.
struct Sum {
  const View& x;
  const float* r;
  std::int64_t r_stride;

  explicit Sum(const Operands& operands)
      : x(operands.at("x")),
        r(operands.at("r").f32()),
        r_stride(operands.at("r").rank == 1 ? 0 : operands.at("r").strides[0]) {}
  double at(std::int64_t row, std::int64_t col) const {
    return static_cast<double>(x.f32()[row * x.strides[0] + col]) + r[row * r_stride + col];
  }
};

void reference(const Problem&, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Sum sum(inputs);
  std::size_t at = 0;
  for (const std::int64_t row : region.rows) {
    for (const std::int64_t col : region.cols) {
      out.value[at] = sum.at(row, col);
      out.bound[at] = math.sums->unit_roundoff * std::abs(out.value[at]);
      out.plain_bound[at] = out.bound[at];
      ++at;
    }
  }
}

// Every element: as cheap as looking for numbers that are none.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t) {
  const Sum sum(operands);
  const View& y = operands.at("y");
  const DType type = problem.dtype("type");
  const double relative = math.sums->unit_roundoff + output_roundoff(type);
  WholeError worst;
  for (std::int64_t row = 0; row < problem.size("rows"); ++row) {
    for (std::int64_t col = 0; col < problem.size("cols"); ++col) {
      const double expected = sum.at(row, col);
      const double got = y.f32()[row * y.strides[0] + col];
      if (got == expected || (std::isnan(got) && std::isnan(expected))) continue;
      const double bound = relative * std::abs(expected) + type->smallest / 2;
      common::note_error(std::abs(got - expected), bound, bound, worst);
    }
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "add",
    .summary = "y = x + r, or with broadcast=1 the row r added to each row of x",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = nullptr,
    .reference = reference,
    .in_place_input = "x",
    .whole_check = whole_check,
};

}  // namespace rooflane::add
