// Inputs as a pure function of seed, kernel, tensor name and element index (contract.md, "Inputs
// from a seed"); any language can rebuild them.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel.hpp"
#include "tensor.hpp"

namespace rooflane {

std::uint64_t fnv1a64(std::string_view text);
std::uint64_t splitmix64(std::uint64_t x);  // the finaliser only

// Element i (row-major) of tensor `name` before scaling: in (-1,1), float32.
float seeded_value(std::uint64_t seed, std::string_view kernel, std::string_view name,
                   std::uint64_t i);
// Fills a tensor with these values times the tensor's scale, rounded to float32 and then to its
// format; integers take their format's whole range instead. Strided views are filled in row-major
// order of their elements. In parallel.
void fill_from_seed(std::uint64_t seed, const Problem& problem, const TensorSpec& tensor,
                    const View& view, int threads);

}  // namespace rooflane
