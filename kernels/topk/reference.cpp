// The largest elements by sorting whole rows, and the room's record. See topk.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/topk/topk.hpp"

namespace rooflane::topk {
namespace {

constexpr ParamSpec params[] = {
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "k", .kind = ParamKind::size, .default_value = 1, .least = 1},
};

std::vector<TensorSpec> tensors(const Problem&) {
  const std::vector<Axis> found = {{"rows", Axis::Form::leading}, {"k"}};
  return {{.name = "x", .role = Role::input, .axes = {{"rows", Axis::Form::leading}, {"cols"}}},
          {.name = "values", .role = Role::output, .axes = found, .like = "x"},
          {.name = "ids", .role = Role::output, .axes = found, .dtype = &int32, .like = "x"}};
}

Cost cost(const Problem& problem) {
  const double elements = problem.value("rows") * problem.value("cols");
  return {.flops = elements, .bytes = traffic_bytes(problem), .unfused_flops = elements};
}

void check(const Problem& problem) {
  const std::int64_t cols = problem.size("cols"), k = problem.size("k");
  if (k > cols) throw argument_error(fmt::format("k={}: allowed are 1 to cols={}", k, cols));
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (cols > most)
    throw argument_error(fmt::format("cols={}: ids are int32, allowed is {}", cols, most));
}

// Elements of sorted `row` that equal the one at `rank`, or are NaN as it is: the ids of the first
// and of the last.
std::pair<std::int32_t, std::int32_t> equals_of(const std::vector<Found>& row, std::int64_t rank) {
  const auto same = [&](const Found& other) {
    const float value = row[static_cast<std::size_t>(rank)].value;
    return other.value == value || (std::isnan(other.value) && std::isnan(value));
  };
  auto first = row.begin() + rank, last = first;
  while (first != row.begin() && same(*(first - 1))) --first;
  while (last + 1 != row.end() && same(*(last + 1))) ++last;
  return {first->id, last->id};
}

void reference(const Problem& problem, const Math&, const Operands& inputs, std::string_view tensor,
               const Region& region, const ReferenceOut& out) {
  const View& x = inputs.at("x");
  std::vector<Found> row(static_cast<std::size_t>(problem.size("cols")));
  std::size_t at = 0;
  for (const std::int64_t r : region.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = {x.f32()[r * x.strides[0] + static_cast<std::int64_t>(i)],
                static_cast<std::int32_t>(i)};
    }
    std::sort(row.begin(), row.end(), before);
    for (const std::int64_t rank : region.cols) {
      const Found& found = row[static_cast<std::size_t>(rank)];
      const bool is_id = tensor == "ids";
      out.value[at] = is_id ? found.id : found.value;
      out.bound[at] = out.plain_bound[at] = 0;
      if (is_id) {
        const auto [first, last] = equals_of(row, rank);
        out.plain_bound[at] = std::max(found.id - first, last - found.id);
      }
      ++at;
    }
  }
}

}  // namespace

const Kernel kernel = {
    .name = "topk",
    .summary = "the k largest elements of each row and their ids, largest first",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
};

}  // namespace rooflane::topk
