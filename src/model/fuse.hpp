// Fused steps: what follows a product is done where it leaves the registers, and a sum where a norm
// reads it, so that no buffer lies between. A rewrite of calls; models know nothing of it.
#pragma once

#include <functional>

#include "model/instance.hpp"

namespace rooflane::model {

// Whether a fused call should take the place of `first`, and do its work.
using Accepts = std::function<bool(const Call& fused, const Call& first)>;

// The instance with steps joined, named FIRST+SECOND, wherever all calls of the second follow those
// of the first at once and what lies between, a buffer, has no other reader:
//   gemm, activation         one gemm, epilogue=relu|gelu|gelu_tanh|silu
//   gemm, activation gate=1  one gemm, gate=1, where gate and up are halves of its columns
//   gemm, add                one gemm, epilogue=add, or bias with broadcast=1
//   add, layernorm|rmsnorm   one norm, residual=1
// again and again, so that chains grow. A c0 that repeats one row becomes epilogue=bias. A sum in
// place is written to a second buffer, since a product's output overlaps no input.
// No `accepts`: all are wanted.
Instance fused(const Instance& instance, const Accepts& accepts = nullptr);

}  // namespace rooflane::model
