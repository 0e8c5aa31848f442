// Softmax by segment in double precision, plain, and the room's record. See segment_softmax.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/segment_softmax/segment_softmax.hpp"

namespace rooflane::segment_softmax {
namespace {

constexpr double smallest_normal = 0x1p-126;
constexpr double infinite = std::numeric_limits<double>::infinity();
// Places of edges are int32 in every variant.
constexpr double most_edges = std::numeric_limits<std::int32_t>::max();

constexpr ParamSpec params[] = {
    {.name = "edges", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "segments", .kind = ParamKind::size, .required = true},
    {.name = "sorted", .kind = ParamKind::flag},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const std::vector<Axis> matrix = {{"edges"}, {"cols"}};
  return {{.name = "x", .role = Role::input, .axes = matrix, .seed_scale = 8},
          {.name = "segment",
           .role = Role::input,
           .axes = {{"edges"}},
           .dtype = &int32,
           .domain = {.kind = IntegerDomain::Kind::ids,
                      .size = "segments",
                      .ascending = problem.flag("sorted")}},
          {.name = "y", .role = Role::output, .axes = matrix, .like = "x"}};
}

Cost cost(const Problem& problem) {
  const double elements = problem.value("edges") * problem.value("cols");
  return {.flops = 5 * elements,
          .exps = elements,
          .bytes = traffic_bytes(problem),
          .unfused_flops = 4 * elements};
}

void check(const Problem& problem) {
  if (problem.value("edges") <= most_edges) return;
  throw argument_error("edges=" + std::to_string(problem.size("edges")) + ": allowed are up to " +
                       std::to_string(static_cast<std::int64_t>(most_edges)));
}

// What is known of the segments that a region's edges belong to, by column of the region.
class Segments {
 public:
  Segments(const Problem& problem, const Operands& inputs, const Region& region)
      : x_(inputs.at("x")),
        segment_(inputs.at("segment").as<std::int32_t>()),
        cols_(region.cols),
        slot_of_(static_cast<std::size_t>(problem.size("segments")), -1) {
    for (const std::int64_t edge : region.rows) {
      std::int64_t& slot = slot_of_[static_cast<std::size_t>(segment_[edge])];
      if (slot < 0) slot = slots_++;
    }
    const auto count = static_cast<std::size_t>(slots_) * cols_.size();
    max_.assign(count, -infinite);
    sum_.assign(count, 0);
    edges_.assign(static_cast<std::size_t>(slots_), 0);
    const std::int64_t edges = problem.size("edges");
    // A NaN is never the maximum here; it comes back through the sum.
    for_each(edges, [&](std::size_t at, double value) { max_[at] = std::max(max_[at], value); });
    for_each(edges, [&](std::size_t at, double value) { sum_[at] += std::exp(value - max_[at]); });
    for (std::int64_t edge = 0; edge < edges; ++edge) {
      const std::int64_t slot = slot_of_[static_cast<std::size_t>(segment_[edge])];
      if (slot >= 0) ++edges_[static_cast<std::size_t>(slot)];
    }
  }

  struct Column {
    double value, max, sum, edges;
  };
  // Column j of the region at an edge of it.
  Column at(std::int64_t edge, std::size_t j) const {
    const auto slot = static_cast<std::size_t>(slot_of_[static_cast<std::size_t>(segment_[edge])]);
    const std::size_t place = slot * cols_.size() + j;
    return {x_.f32()[edge * x_.strides[0] + cols_[j]], max_[place], sum_[place], edges_[slot]};
  }

 private:
  // body(place in the tables, element) for every edge of the segments.
  template <class Body>
  void for_each(std::int64_t edges, Body body) const {
    for (std::int64_t edge = 0; edge < edges; ++edge) {
      const std::int64_t slot = slot_of_[static_cast<std::size_t>(segment_[edge])];
      if (slot < 0) continue;
      const float* const row = x_.f32() + edge * x_.strides[0];
      const std::size_t first = static_cast<std::size_t>(slot) * cols_.size();
      for (std::size_t j = 0; j < cols_.size(); ++j) body(first + j, double{row[cols_[j]]});
    }
  }

  const View& x_;
  const std::int32_t* segment_;
  const std::vector<std::int64_t>& cols_;
  std::vector<std::int64_t> slot_of_;  // of each segment; -1: it has none
  std::int64_t slots_ = 0;
  std::vector<double> max_, sum_;
  std::vector<double> edges_;
};

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Segments segments(problem, inputs, region);
  const double u = math.sums->unit_roundoff;
  std::size_t at = 0;
  for (const std::int64_t edge : region.rows) {
    for (std::size_t j = 0; j < region.cols.size(); ++j) {
      const Segments::Column column = segments.at(edge, j);
      const double y = std::exp(column.value - column.max) / column.sum;
      // -inf has the weight zero exactly, which needs no allowance of its own.
      const double below = std::isfinite(column.value) ? column.max - column.value : 0;
      out.value[at] = y;
      out.bound[at] = (8 + below) * u * y + smallest_normal;
      out.plain_bound[at] = out.bound[at] + plain_sum_error(column.edges, u) * y;
      ++at;
    }
  }
}

// What a segment's column must sum up to 1 within.
struct Sum {
  double max = -infinite, sum = 0, bound = 0, edges = 0;
};

// The columns [first,last) of all segments; NaN and +inf make a sum unknown.
std::vector<Sum> sums_of(const Problem& problem, const Operands& operands, double u,
                         std::int64_t first, std::int64_t last) {
  const View& x = operands.at("x");
  const View& y = operands.at("y");
  const auto* const segment = operands.at("segment").as<std::int32_t>();
  std::vector<Sum> sums(static_cast<std::size_t>(problem.size("segments") * (last - first)));
  const auto for_each = [&](auto body) {
    for (std::int64_t e = 0; e < problem.size("edges"); ++e) {
      for (std::int64_t j = first; j < last; ++j) {
        const std::int64_t at = segment[e] * (last - first) + j - first;
        body(sums[static_cast<std::size_t>(at)], double{x.f32()[e * x.strides[0] + j]},
             double{y.f32()[e * y.strides[0] + j]});
      }
    }
  };
  for_each([](Sum& sum, double value, double) {
    if (std::isnan(value) || value > sum.max) sum.max = value;  // NaN stays: it exceeds nothing
    ++sum.edges;
  });
  for_each([&](Sum& sum, double value, double weight) {
    sum.sum += weight;
    sum.bound += smallest_normal;
    if (std::isfinite(value)) sum.bound += (8 + (sum.max - value)) * u * std::abs(weight);
  });
  return sums;
}

// The sum of each segment's column is 1 within the bounds of its elements.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t) {
  constexpr std::int64_t together = 16;  // columns: a cache line of x
  const double u = math.sums->unit_roundoff;
  const std::int64_t cols = problem.size("cols");
  WholeError worst;
  for (std::int64_t first = 0; first < cols; first += together) {
    const std::int64_t last = std::min(first + together, cols);
    for (const Sum& sum : sums_of(problem, operands, u, first, last)) {
      if (sum.edges == 0 || !std::isfinite(sum.max)) continue;
      const double plain = sum.bound + plain_sum_error(sum.edges, u);
      common::note_error(std::abs(sum.sum - 1), sum.bound, plain, worst);
    }
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "segment_softmax",
    .summary = "y = exp(x - max) / sum(exp(x - max)) over the rows of one segment",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .whole_check = whole_check,
};

}  // namespace rooflane::segment_softmax
