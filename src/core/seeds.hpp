// Inputs as a pure function of seed, distribution, kernel, tensor name and element index; any
// language can rebuild them.
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
// The same element of a tensor of integers from 0 to end - 1, end at most 2^31: with u the upper 32
// of the 64 bits from which `seeded_value` takes its upper 24, ⌊u·end / 2^32⌋.
std::int32_t seeded_integer(std::uint64_t seed, std::string_view kernel, std::string_view name,
                            std::uint64_t i, std::int64_t end);
// The same values one after another: the names are hashed once.
class SeededStream {
 public:
  SeededStream(std::uint64_t seed, std::string_view kernel, std::string_view name);
  float value(std::uint64_t i) const;
  std::int32_t integer(std::uint64_t i, std::int64_t end) const;

 private:
  std::uint64_t start_;
};
// Fills a tensor with values of the seed's distribution (distribution.hpp), uniform: those of
// `seeded_value` times the tensor's scale, rounded to float32 and then to its format. Integers with
// a domain (domain.hpp) are those of `seeded_integer`, sorted where they ascend, or N for counts;
// others take their format's whole range. Strided views are filled in row-major order of their
// elements. In parallel.
void fill_from_seed(const InputSeed& seed, const Problem& problem, const TensorSpec& tensor,
                    const View& view, int threads);

}  // namespace rooflane
