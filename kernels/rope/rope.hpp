// Rotary position embedding: what the variants of this room share. The record, the reference and
// the table of angles are in reference.cpp.
//
//   t = (offset + p)·base^(-2i / head_dim)      for position p < len and i < head_dim / 2
//   y[…,a] = x[…,a]·cos t - x[…,b]·sin t,   y[…,b] = x[…,b]·cos t + x[…,a]·sin t
//
// x, y: [batch,heads,len,head_dim], head_dim even. style=half: a = i, b = i + head_dim/2 (GPT-NeoX,
// Llama's files on Hugging Face); interleaved: a = 2i, b = 2i + 1 (the paper, Llama's own). (Su et
// al., "RoFormer", arXiv 2104.09864.) y may be x.
// Heads from `rotated` on are copied: keys and values that one product computed go to a cache so,
// the keys rotated.
// Values: NaN and infinities stay in their pair.
// Cost: 3 flops an element, 8 bytes, half of that for float16 and bfloat16, which are computed with
// as float32. Angles are constants of the problem: cosines and sines are a table, planned once in
// double precision; 8 bytes (style=half: 4) for each position and element of a head.
// Tolerance: |error| <= 4u·(|x_a·cos t| + |x_b·sin t|) + 2^-126, u = 2^-24: roundings of cosine,
// sine, two products and their sum. Angles in float32 err by some roundings of t, for which plain
// formulas are allowed 4u·|t|·(|x_a| + |x_b|) more.
//
// hwy: a block of positions for one head after the other, so that its part of the table stays in
// L1; where the heads of a position lie side by side, position by position. Beyond the caches y is
// written past them where its halves begin at vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor.hpp"
#include "core/variant.hpp"

namespace rooflane::rope {

enum class Style { half, interleaved };

// A complete problem's parameters.
struct Sizes {
  std::int64_t batch, heads, len, head_dim;
  std::int64_t rotated;  // heads; those behind them are copied
  double base;
  std::int64_t offset;
  Style style;

  explicit Sizes(const Problem& problem);
  std::int64_t half() const { return head_dim / 2; }
};

// base^(-2i / head_dim), radians a position: the angle by which a position is ahead of the one
// before.
double frequency(const Sizes& sizes, std::int64_t i);

// cos t and sin t, rounded once: [len,head_dim/2] each.
struct Table {
  std::vector<float> cos, sin;
  explicit Table(const Sizes& sizes);
};

// Rows of x and y by batch, head and position; strides in elements.
template <class T>
struct RopeOperands {
  const T* x = nullptr;
  T* y = nullptr;
  std::int64_t x_strides[3] = {};  // of batch, head, position
  std::int64_t y_strides[3] = {};

  RopeOperands() = default;
  explicit RopeOperands(const Operands& operands) {
    const View& in = operands.at("x");
    const View& out = operands.at("y");
    x = in.as<T>();
    y = out.as<T>();
    for (int axis = 0; axis < 3; ++axis) {
      x_strides[axis] = in.strides[axis];
      y_strides[axis] = out.strides[axis];
    }
  }
  static std::int64_t at(const std::int64_t (&strides)[3], std::int64_t batch, std::int64_t head,
                         std::int64_t position) {
    return batch * strides[0] + head * strides[1] + position * strides[2];
  }
  const T* x_row(std::int64_t batch, std::int64_t head, std::int64_t position) const {
    return x + at(x_strides, batch, head, position);
  }
  T* y_row(std::int64_t batch, std::int64_t head, std::int64_t position) const {
    return y + at(y_strides, batch, head, position);
  }
};

// For hwy: one row, of head_dim elements, and its place in the table: of style half cos and sin of
// head_dim/2, of interleaved ones of head_dim, each cosine twice, each sine as -sin, sin.
struct Rotation {
  const void* x;
  void* y;
  const float* cos;
  const float* sin;
  std::size_t pairs;
  bool stream;  // y past the caches: both halves are whole, aligned vectors
};

}  // namespace rooflane::rope
