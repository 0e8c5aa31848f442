// The memory of a model: inputs and outputs of each phase, weights and states of all, and one arena
// for the buffers. Planned and filled once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "model/arena.hpp"
#include "model/instance.hpp"
#include "model/weights.hpp"

namespace rooflane::model {

// Bytes of an instance's tensors, buffers as the arena holds them.
double memory_bytes(const Instance& instance);

class Memory {
 public:
  // Inputs and states from the seed; buffers and outputs hold NaN, so that what no step wrote is
  // seen. Throws Error(argument) for weights that the source has not, std::bad_alloc.
  Memory(const Instance& instance, const WeightSource& weights, std::uint64_t seed, int threads);

  View view(std::size_t phase, const Strided& strided) const;
  View all_of(std::size_t phase, std::size_t tensor) const;
  // Gives the memory of a weight back: its packed copies are all that is read from now on.
  void drop_weight(const std::string& name);
  void reset_states();

  std::int64_t weight_bytes() const;  // that are held
  std::int64_t arena_bytes() const { return static_cast<std::int64_t>(arena_.bytes()); }
  std::int64_t other_bytes() const { return other_bytes_; }  // inputs, outputs, states

 private:
  // A weight or state in the block of all.
  struct Shared {
    std::size_t offset = 0, bytes = 0;
    Tensor::Kind kind = Tensor::Kind::weight;
    bool filled = false;
  };

  void plan_shared();
  void fill(std::size_t phase);
  void* place(const Tensor& tensor, std::int64_t offset);
  void* place_shared(const Tensor& tensor);

  const Instance& instance_;
  const WeightSource& weights_;
  std::uint64_t seed_;
  int threads_;
  std::map<std::string, Shared> shared_;  // dropped ones have no bytes
  Buffer block_;
  std::vector<Buffer> own_;  // inputs and outputs
  Buffer arena_;
  std::vector<std::vector<std::int64_t>> offsets_;  // in the arena, of each phase's tensors
  std::vector<std::vector<void*>> data_;
  std::int64_t other_bytes_ = 0;
};

}  // namespace rooflane::model
