// A model with all sizes known: tensors and, phase by phase, the calls of kernels in the order in
// which they run, loops unrolled. Data only: who gives memory and plans is chain.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/problem.hpp"
#include "model/strided.hpp"
#include "model/text.hpp"

namespace rooflane::model {

struct Tensor {
  // weight: never written. state: kept from run to run, as the caches of keys and values. output:
  // what the model is for. buffer: lives from its first writer to its last reader.
  enum class Kind { input, weight, state, buffer, output };
  std::string name;
  Kind kind = Kind::buffer;
  Shape shape;
  DType dtype = &float32;
  // Values from the seed: scale times a number between -1 and 1, plus offset; of integers one from
  // 0 to before `below`.
  double scale = 1;
  double offset = 0;
  std::int64_t below = 0;
  bool ascending = false;  // each integer at least the one before
  // Rows of each of the tensors that a file may have instead; empty: as many in each.
  std::vector<std::int64_t> parts;
  int line = 0;

  std::int64_t elements() const;
  double bytes() const;
};

// What a call hands to a tensor of its kernel.
struct Operand {
  std::string name;  // the kernel's
  Role role = Role::input;
  Strided view;      // one axis per axis of the kernel's tensor
  bool all = false;  // every element of the model's tensor
  // For integers that the kernel limits (core/domain.hpp): one past the largest, and whether they
  // must ascend.
  std::int64_t below = 0;
  bool ascending = false;
};

struct Call {
  std::size_t step = 0;  // in Phase::steps
  Problem problem;
  std::vector<Operand> operands;
  std::string math;  // of this call; empty: that of the whole
};

// A statement of the file; in a loop it is called several times.
struct Step {
  std::string name;
  const Kernel* kernel = nullptr;
  int line = 0;
  std::vector<std::size_t> calls;
};

struct Phase {
  std::string name;
  std::vector<std::pair<std::string, std::int64_t>> symbols;  // all but loops'
  std::vector<Tensor> tensors;
  std::vector<Step> steps;
  std::vector<Call> calls;
};

struct Instance {
  std::string model;
  std::string size;  // empty: the defaults
  std::vector<Phase> phases;
  // Weights and states have one memory for all phases, and the same shape in each.
};

using Settings = std::vector<std::pair<std::string, std::int64_t>>;

// The sizes that the text names.
std::vector<std::string> sizes_of(const ModelText& text);

// In which format a weight is stored that the text leaves in float32.
using WeightFormat = std::function<DType(const Tensor&)>;
// One format for all weights of two and more axes with rows of whole blocks of it.
WeightFormat matrices_in(DType dtype);

// `size`: one of the text's; empty: symbols' defaults. `settings` are laid over it. A weight stays
// in float32 where some step cannot take the format that `format` returns. Throws Error(argument)
// naming file and line.
Instance instantiate(const ModelText& text, const std::string& size, const Settings& settings,
                     std::span<const Kernel* const> kernels, const WeightFormat& format = nullptr);

}  // namespace rooflane::model
