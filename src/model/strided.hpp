// A tensor of a model and what steps see of it: slices, axes split, merged and permuted, copies
// along an axis, all by strides, so that nothing is moved. Memory has no place here yet.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/kernel.hpp"
#include "core/tensor.hpp"
#include "model/expression.hpp"

namespace rooflane::model {

// Shape and strides in elements of the tensor number `tensor`, from element `offset` on.
struct Strided {
  std::size_t tensor = 0;
  std::int64_t offset = 0;
  Shape shape;
  Shape strides;

  std::int64_t elements() const;
};

// All of a row-major tensor.
Strided whole(std::size_t tensor, const Shape& shape);

// `NAME[slices].method(...)...`, the words of PyTorch:
//   [i, a:b, :]        an index drops its axis, a:b is from a to before b, axes not named stay
//   .view(n, ...)      the same elements in other axes, where strides allow that
//   .permute(i, ...)   axis i of the view first, ...
//   .expand(n, ...)    axes of length 1, or new ones in front, repeated without a copy
// `find` gives the tensor of a name, which may hold symbols: `blk.{layer}.q`. Throws
// Error(argument).
Strided parse_view(std::string_view text, const Symbols& symbols,
                   const std::function<Strided(const std::string& name)>& find);

// The view with one axis per entry of `axes`: a batch of one put in front, leading axes merged.
// Throws Error(argument) where that needs a copy or the number of axes is another.
Strided fitted(const Strided& view, const TensorSpec& spec);

// The name with the values of its symbols: "blk.3.q". Throws Error(argument).
std::string substituted(std::string_view name, const Symbols& symbols);

}  // namespace rooflane::model
