// Where the values of weights come from: the seed, or whoever can give a tensor by its name, as a
// GGUF file does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "model/instance.hpp"

namespace rooflane::model {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Why it cannot give this weight, in words; nothing when it can. Called before anything is
  // allocated.
  virtual std::optional<std::string> missing(const Tensor& weight) const = 0;
  // Writes the elements row-major in the weight's shape and format. Throws Error.
  virtual void read(const Tensor& weight, void* to) const = 0;
};

// Throws Error(argument) for the first weight that the source cannot give, and says how many more.
void require_weights(const Instance& instance, const WeightSource& weights);

// Element i of a tensor is scale·u + offset, with u of docs/reference.md, "Inputs from a seed", for
// the kernel's name MODEL and the tensor's name; of integers it is that of seeded_integer, sorted
// where they ascend. Rounded to the format once.
void fill_from_seed(const Tensor& tensor, const std::string& model, std::uint64_t seed, void* to,
                    int threads);
std::unique_ptr<WeightSource> seeded_weights(const std::string& model, std::uint64_t seed,
                                             int threads);

}  // namespace rooflane::model
