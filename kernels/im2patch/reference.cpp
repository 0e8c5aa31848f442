// Patches by their definition, and the room's record. See im2patch.hpp.
#include <fmt/format.h>

#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/im2patch/im2patch.hpp"

namespace rooflane::im2patch {
namespace {

constexpr ParamSpec params[] = {
    {.name = "batch", .kind = ParamKind::size, .default_value = 1},
    {.name = "channels", .kind = ParamKind::size, .default_value = 3, .least = 1},
    {.name = "height", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "width", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "patch", .kind = ParamKind::size, .required = true, .least = 1},
};

std::int64_t patches_of(const Problem& problem) {
  const std::int64_t patch = problem.size("patch");
  return problem.size("height") / patch * (problem.size("width") / patch);
}
std::int64_t patch_elements(const Problem& problem) {
  const std::int64_t patch = problem.size("patch");
  return problem.size("channels") * patch * patch;
}

std::vector<TensorSpec> tensors(const Problem&) {
  constexpr auto plain = Axis::Form::plain;
  return {{.name = "image",
           .role = Role::input,
           .axes = {{"batch", Axis::Form::droppable}, {"channels"}, {"height"}, {"width"}}},
          {.name = "patches",
           .role = Role::output,
           .axes = {{"batch", Axis::Form::droppable},
                    {"patches", plain, patches_of},
                    {"channels·patch²", plain, patch_elements}},
           .like = "image"}};
}

Cost cost(const Problem& problem) { return {.bytes = traffic_bytes(problem), .moves = true}; }

void check(const Problem& problem) {
  const std::int64_t patch = problem.size("patch");
  for (const char* const side : {"height", "width"}) {
    const std::int64_t size = problem.size(side);
    if (size % patch == 0) continue;
    throw argument_error(
        fmt::format("{}={}: allowed are multiples of patch={}", side, size, patch));
  }
}

void reference(const Problem& problem, const Math&, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const View& image = inputs.at("image");
  const std::int64_t p = problem.size("patch"), across = problem.size("width") / p;
  const std::int64_t patches = patches_of(problem);
  std::size_t at = 0;
  for (const std::int64_t row : region.rows) {
    const std::int64_t b = row / patches, patch = row % patches;
    for (const std::int64_t col : region.cols) {
      const std::int64_t c = col / (p * p), i = col / p % p, j = col % p;
      const std::int64_t h = patch / across * p + i, w = patch % across * p + j;
      out.value[at] =
          image.f32()[b * image.strides[0] + c * image.strides[1] + h * image.strides[2] + w];
      out.bound[at] = out.plain_bound[at] = 0;
      ++at;
    }
  }
}

}  // namespace

const Kernel kernel = {
    .name = "im2patch",
    .summary = "the patches of an image as rows, in the order of a convolution's weight",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
};

}  // namespace rooflane::im2patch
