// An operand of a product as vectors along k, in any number format: how loops, units, packing and
// the reference see a, b and what was made of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.hpp"

namespace rooflane::gemm {

// Row i of op(a), or column i of op(b), is vector i. Its element p is batch·batch_stride + i·outer
// + p·inner elements behind `data`. One of outer and inner is 1. A block format's vectors run along
// memory (inner is 1), and p is a multiple of the block.
struct MatrixView {
  DType type = nullptr;
  const std::byte* data = nullptr;
  std::int64_t batch_stride = 0, outer = 0, inner = 1;

  MatrixView() = default;
  // `along_k`: the view's last axis is k.
  MatrixView(const View& view, bool along_k)
      : type(view.dtype),
        data(static_cast<const std::byte*>(view.data)),
        batch_stride(view.strides[0]),
        outer(along_k ? view.strides[1] : 1),
        inner(along_k ? 1 : view.strides[1]) {}

  // A view of float32, without gaps except those given.
  MatrixView(const float* floats, std::int64_t batch, std::int64_t outer_stride,
             std::int64_t inner_stride)
      : type(&float32),
        data(reinterpret_cast<const std::byte*>(floats)),
        batch_stride(batch),
        outer(outer_stride),
        inner(inner_stride) {}

  const float* f32() const { return reinterpret_cast<const float*>(data); }
  const std::byte* at(std::int64_t batch, std::int64_t vector, std::int64_t p = 0) const {
    return data + type->bytes(batch * batch_stride + vector * outer + p * inner);
  }
};

}  // namespace rooflane::gemm
