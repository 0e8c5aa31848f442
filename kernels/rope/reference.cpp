// Rotary position embedding in double precision, plain, its table of angles, and the room's record.
// See rope.hpp for the maths.
#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/text.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/rope/rope.hpp"

namespace rooflane::rope {

Sizes::Sizes(const Problem& problem)
    : batch(problem.size("batch")),
      heads(problem.size("heads")),
      len(problem.size("len")),
      head_dim(problem.size("head_dim")),
      rotated(problem.size("rotated")),
      base(problem.value("base")),
      offset(problem.size("offset")),
      style(static_cast<Style>(static_cast<int>(problem.value("style")))) {}

double frequency(const Sizes& sizes, std::int64_t i) {
  return std::pow(sizes.base, -2.0 * static_cast<double>(i) / static_cast<double>(sizes.head_dim));
}

Table::Table(const Sizes& sizes) {
  const auto entries = static_cast<std::size_t>(sizes.len * sizes.half());
  cos.reserve(entries);
  sin.reserve(entries);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < sizes.half(); ++i) frequencies.push_back(frequency(sizes, i));
  for (std::int64_t position = 0; position < sizes.len; ++position) {
    for (const double radians : frequencies) {
      const double t = static_cast<double>(sizes.offset + position) * radians;
      cos.push_back(static_cast<float>(std::cos(t)));
      sin.push_back(static_cast<float>(std::sin(t)));
    }
  }
}

namespace {

constexpr double smallest_normal = 0x1p-126;

double heads_of(const Problem& problem) { return problem.value("heads"); }

constexpr std::string_view styles[] = {"half", "interleaved"};
constexpr ParamSpec params[] = {
    {.name = "batch", .kind = ParamKind::size, .required = true},
    {.name = "heads", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "len", .kind = ParamKind::size, .required = true},
    {.name = "head_dim", .kind = ParamKind::size, .required = true, .least = 2},
    {.name = "base", .kind = ParamKind::real, .default_value = 10000},
    {.name = "offset", .kind = ParamKind::size},
    {.name = "rotated", .kind = ParamKind::size, .default_from = heads_of},
    {.name = "style", .kind = ParamKind::choice, .words = styles},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const DType type = problem.dtype("type");
  const std::vector<Axis> axes = {{"batch"}, {"heads"}, {"len"}, {"head_dim"}};
  return {{.name = "x",
           .role = Role::input,
           .axes = axes,
           .dtype = type,
           .reach = reach_below(type, 1)},
          {.name = "y", .role = Role::output, .axes = axes, .dtype = type, .like = "x"}};
}

// An element's 3 flops: a product, and a multiply-add.
Cost cost(const Problem& problem) {
  const double elements = problem.value("batch") * problem.value("rotated") * problem.value("len") *
                          problem.value("head_dim");
  return {.flops = 3 * elements,
          .bytes = traffic_bytes(problem),
          .fma_flops = 2 * elements,
          .unfused_flops = elements};
}

// Angles are formed from offset + len in double.
void check(const Problem& problem) {
  if (problem.size("head_dim") % 2 != 0) {
    throw argument_error("head_dim=" + std::to_string(problem.size("head_dim")) +
                         ": allowed are multiples of 2, since elements are rotated in pairs");
  }
  if (problem.size("rotated") > problem.size("heads")) {
    throw argument_error("rotated=" + std::to_string(problem.size("rotated")) +
                         ": allowed are at most heads=" + std::to_string(problem.size("heads")));
  }
  const double base = problem.value("base");
  if (std::isfinite(base) && base > 0) return;
  throw argument_error("base=" + print_real(base) + ": allowed is a finite number above 0");
}

struct Expected {
  double value;
  double bound;
  double plain_bound;
};

// Element `col` of row `row` of a [batch,heads,len,head_dim] view.
Expected element(const Sizes& sizes, const float* x, std::int64_t row, std::int64_t col, double u) {
  if (row / sizes.len % sizes.heads >= sizes.rotated) return {x[col], 0, 0};
  const std::int64_t position = row % sizes.len;
  const bool is_half = sizes.style == Style::half;
  const std::int64_t i = is_half ? col % sizes.half() : col / 2;
  const bool is_first = is_half ? col < sizes.half() : col % 2 == 0;
  const double own = x[col];
  const double other =
      is_half ? x[is_first ? col + sizes.half() : i] : x[is_first ? col + 1 : col - 1];
  const double t = static_cast<double>(sizes.offset + position) * frequency(sizes, i);
  const double straight = own * std::cos(t);
  const double crossed = other * (is_first ? -std::sin(t) : std::sin(t));
  const double bound = 4 * u * (std::abs(straight) + std::abs(crossed)) + smallest_normal;
  const double of_angle = 4 * u * std::abs(t) * (std::abs(own) + std::abs(other));
  return {straight + crossed, bound, bound + of_angle};
}

// Row `row` of a [batch,heads,len,head_dim] view.
const float* row_of(const View& view, const Sizes& sizes, std::int64_t row) {
  const std::int64_t position = row % sizes.len, head = row / sizes.len % sizes.heads;
  const std::int64_t batch = row / sizes.len / sizes.heads;
  return view.f32() + batch * view.strides[0] + head * view.strides[1] + position * view.strides[2];
}

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Sizes sizes(problem);
  const View& x = inputs.at("x");
  std::size_t at = 0;
  for (const std::int64_t row : region.rows) {
    for (const std::int64_t col : region.cols) {
      const Expected expected =
          element(sizes, row_of(x, sizes, row), row, col, math.sums->unit_roundoff);
      out.value[at] = expected.value;
      out.bound[at] = expected.bound;
      out.plain_bound[at] = expected.plain_bound;
      ++at;
    }
  }
}

// Elements seeded for each row: two, and one of each 1024.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const Sizes sizes(problem);
  const DType type = problem.dtype("type");
  const double rounding = output_roundoff(type);
  const auto checked = static_cast<std::uint64_t>(2 + sizes.head_dim / 1024);
  WholeError worst;
  for (std::int64_t row = 0; row < sizes.batch * sizes.heads * sizes.len; ++row) {
    const float* x = row_of(operands.at("x"), sizes, row);
    const float* y = row_of(operands.at("y"), sizes, row);
    const std::uint64_t of_row = splitmix64(seed + static_cast<std::uint64_t>(row));
    for (std::uint64_t k = 0; k < checked; ++k) {
      const auto col = static_cast<std::int64_t>(splitmix64(of_row + k) %
                                                 static_cast<std::uint64_t>(sizes.head_dim));
      const Expected expected = element(sizes, x, row, col, math.sums->unit_roundoff);
      if (y[col] == expected.value || (std::isnan(expected.value) && std::isnan(y[col]))) continue;
      const double rounded = rounding * std::abs(expected.value) + type->smallest / 2;
      common::note_error(std::abs(y[col] - expected.value), expected.bound + rounded,
                         expected.plain_bound + rounded, worst);
    }
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "rope",
    .summary = "pairs of x rotated by angles that grow with the position",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .in_place_input = "x",
    .whole_check = whole_check,
};

}  // namespace rooflane::rope
