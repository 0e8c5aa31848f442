// What follows a product before it becomes c: `epilogue=`, a chain of functions of an element in
// the order given, and `gate=1`. Parsed and checked here, without code of any variant. Bounds:
// epilogue_reference.hpp; vectors: hwy_epilogue.cpp.
//
//   bias        v + bias[j]          bias [n], float32
//   relu        max(v, 0)
//   leaky_relu  v, slope·v where v is negative
//   gelu        v·Φ(v)               by erf
//   gelu_tanh   the same by tanh
//   silu        v / (1 + exp(-v))
//   add         v + residual[i,j]    residual like c
//   clamp       min(max(v, low), high)
// each NaN where v is. The activations are those of kernels/activation/activation.hpp.
//
// gate=1: b is [k,2n], n columns `gate` and n columns `up` (trans_b=1: [2n,k]); c = silu(a·gate) ·
// (a·up), the first half of a SwiGLU layer (Shazeer, arXiv 2002.05202).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/problem.hpp"
#include "core/variant.hpp"
#include "kernels/common/activations.hpp"

namespace rooflane::gemm {

struct Epilogue {
  enum class Op : std::uint8_t { bias, relu, leaky_relu, gelu, gelu_tanh, silu, add, clamp };
  static constexpr std::string_view names[] = {"bias",      "relu", "leaky_relu", "gelu",
                                               "gelu_tanh", "silu", "add",        "clamp"};
  static constexpr std::size_t most = std::size(names);

  explicit Epilogue(const Problem& problem);
  // One function of a chain.
  Epilogue(Op op, const Epilogue& of)
      : chain{op}, count(1), slope(of.slope), low(of.low), high(of.high) {}

  std::span<const Op> ops() const { return {chain.data(), count}; }
  bool empty() const { return count == 0; }
  bool has(Op op) const;

  std::array<Op, most> chain{};
  std::uint8_t count = 0;
  float slope, low, high;
};

// Nothing if the op is not an activation.
std::optional<common::Activation> activation_of(Epilogue::Op op);
// True for the chains that keep a product linear in its operands.
bool is_linear(const Epilogue& epilogue);
// exp, erf and tanh for an element of c.
double exps_of(const Epilogue& epilogue);
// Parameters that contradict each other. Throws Error.
void check_epilogue(const Problem& problem);
// "epilogue=bias+gelu" or "gate=1", for refusals; empty: there is neither.
std::string epilogue_text(const Problem& problem);
// Rungs of the ladders compute the product alone. Throws Error(unavailable) where more is asked
// for.
void require_no_epilogue(const Problem& problem, const Tuning& step);

}  // namespace rooflane::gemm
