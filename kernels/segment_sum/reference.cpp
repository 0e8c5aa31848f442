// Sums by segment in double precision, plain, and the room's record. See segment_sum.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/segment_sum/segment_sum.hpp"

namespace rooflane::segment_sum {
namespace {

// Places of edges are int32 in every variant.
constexpr double most_edges = std::numeric_limits<std::int32_t>::max();

constexpr ParamSpec params[] = {
    {.name = "edges", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "segments", .kind = ParamKind::size, .required = true},
    {.name = "sorted", .kind = ParamKind::flag},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  constexpr int binades = 31;  // of as many edges as there can be
  return {{.name = "x",
           .role = Role::input,
           .axes = {{"edges"}, {"cols"}},
           .reach = reach_below(&float32, binades)},
          {.name = "segment",
           .role = Role::input,
           .axes = {{"edges"}},
           .dtype = &int32,
           .domain = {.kind = IntegerDomain::Kind::ids,
                      .size = "segments",
                      .ascending = problem.flag("sorted")}},
          {.name = "y", .role = Role::output, .axes = {{"segments"}, {"cols"}}}};
}

Cost cost(const Problem& problem) {
  const double elements = problem.value("edges") * problem.value("cols");
  return {.flops = elements, .bytes = traffic_bytes(problem), .unfused_flops = elements};
}

void check(const Problem& problem) {
  if (problem.value("edges") <= most_edges) return;
  throw argument_error("edges=" + std::to_string(problem.size("edges")) + ": allowed are up to " +
                       std::to_string(static_cast<std::int64_t>(most_edges)));
}

double bound_of(double edges, double magnitude, double u) {
  return edges > 1 ? (8 + std::sqrt(edges)) * u * magnitude : 0;
}

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const View& x = inputs.at("x");
  const auto* const segment = inputs.at("segment").as<std::int32_t>();
  const std::size_t cols = region.cols.size();
  // Which of the region's rows a segment is.
  constexpr std::int64_t none = -1;
  std::vector<std::int64_t> row_of(static_cast<std::size_t>(problem.size("segments")), none);
  for (std::size_t i = 0; i < region.rows.size(); ++i) {
    row_of[static_cast<std::size_t>(region.rows[i])] = static_cast<std::int64_t>(i);
  }
  const std::size_t count = region.rows.size() * cols;
  std::fill_n(out.value, count, 0.0);
  std::vector<double> magnitude(count), edges(region.rows.size());
  for (std::int64_t e = 0; e < problem.size("edges"); ++e) {
    const std::int64_t row = row_of[static_cast<std::size_t>(segment[e])];
    if (row == none) continue;
    const float* const elements = x.f32() + e * x.strides[0];
    const std::size_t at = static_cast<std::size_t>(row) * cols;
    for (std::size_t j = 0; j < cols; ++j) {
      out.value[at + j] += elements[region.cols[j]];
      magnitude[at + j] += std::abs(elements[region.cols[j]]);
    }
    ++edges[static_cast<std::size_t>(row)];
  }
  for (std::size_t i = 0; i < count; ++i) {
    out.bound[i] = bound_of(edges[i / cols], magnitude[i], math.sums->unit_roundoff);
    out.plain_bound[i] = 2 * out.bound[i];
  }
}

// The columns of y together are those of x: each row's roundings add to the sum's.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t) {
  const View& x = operands.at("x");
  const View& y = operands.at("y");
  const auto cols = static_cast<std::size_t>(problem.size("cols"));
  std::vector<double> difference(cols), magnitude(cols);
  for (std::int64_t e = 0; e < problem.size("edges"); ++e) {
    for (std::size_t j = 0; j < cols; ++j) {
      const float value = x.f32()[e * x.strides[0] + static_cast<std::int64_t>(j)];
      difference[j] += value;
      magnitude[j] += std::abs(value);
    }
  }
  for (std::int64_t s = 0; s < problem.size("segments"); ++s) {
    for (std::size_t j = 0; j < cols; ++j) {
      difference[j] -= y.f32()[s * y.strides[0] + static_cast<std::int64_t>(j)];
    }
  }
  WholeError worst;
  for (std::size_t j = 0; j < cols; ++j) {
    if (!std::isfinite(magnitude[j])) continue;
    const double bound =
        bound_of(problem.value("edges"), magnitude[j], math.sums->unit_roundoff) + 0x1p-126;
    common::note_error(std::abs(difference[j]), bound, 2 * bound, worst);
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "segment_sum",
    .summary = "y[s] = sum of the rows of x whose segment is s",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .whole_check = whole_check,
};

}  // namespace rooflane::segment_sum
