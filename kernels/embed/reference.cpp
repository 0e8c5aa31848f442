// Embedding in double precision, plain, and the room's record. See embed.hpp.
#include <cmath>

#include "generated_catalogue.hpp"
#include "kernels/embed/embed.hpp"

namespace rooflane::embed {
namespace {

constexpr ParamSpec params[] = {
    {.name = "n", .kind = ParamKind::size, .required = true},
    {.name = "vocab", .kind = ParamKind::size, .required = true},
    {.name = "cols", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "table_type", .kind = ParamKind::choice, .dtypes = table_types},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  return {{.name = "table",
           .role = Role::input,
           .axes = {{"vocab"}, {"cols"}},
           .dtype = problem.dtype("table_type")},
          {.name = "ids",
           .role = Role::input,
           .axes = {{"n", Axis::Form::leading}},
           .dtype = &int32,
           .domain = {.kind = IntegerDomain::Kind::ids, .size = "vocab"}},
          {.name = "y",
           .role = Role::output,
           .axes = {{"n", Axis::Form::leading}, {"cols"}},
           .like = "ids"}};
}

// Rows that are asked for, when ids are drawn at random.
double different_rows(double n, double vocab) {
  return n == 0 ? 0 : vocab * -std::expm1(n * std::log1p(-1 / vocab));
}

Cost cost(const Problem& problem) {
  const double n = problem.value("n"), cols = problem.value("cols");
  const DType type = problem.dtype("table_type");
  const double row_bytes =
      cols / static_cast<double>(type->block) * static_cast<double>(size_of(type));
  const double products = type == &q8_0 ? n * cols : 0;
  return {.flops = products,
          .bytes = 4 * n + different_rows(n, problem.value("vocab")) * row_bytes + 4 * n * cols,
          .unfused_flops = products,
          .moves = true};
}

void reference(const Problem&, const Math&, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const View& table = inputs.at("table");
  const auto* const ids = inputs.at("ids").as<std::int32_t>();
  std::size_t at = 0;
  for (const std::int64_t row : region.rows) {
    const float* const elements = table.f32() + ids[row] * table.strides[0];
    for (const std::int64_t col : region.cols) {
      out.value[at] = elements[col];
      out.bound[at] = out.plain_bound[at] = 0;
      ++at;
    }
  }
}

}  // namespace

const Kernel kernel = {
    .name = "embed",
    .summary = "y = rows of a table by their ids",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = nullptr,
    .reference = reference,
};

}  // namespace rooflane::embed
