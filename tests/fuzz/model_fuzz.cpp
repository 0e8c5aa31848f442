// Model files: whatever the text is, it is a model or refused, and all that a model's calls are
// given lies within its tensors. No kernel runs and no tensor is allocated.
#include <cstdint>

#include "model/arena.hpp"
#include "model/instance.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

// Strides are not negative: the last element is the farthest.
void check_operand(const model::Phase& phase, const model::Operand& operand) {
  require(operand.view.tensor < phase.tensors.size());
  if (operand.view.elements() == 0) return;
  std::int64_t last = operand.view.offset;
  for (std::size_t i = 0; i < operand.view.shape.size(); ++i) {
    require(operand.view.strides[i] >= 0);
    last += (operand.view.shape[i] - 1) * operand.view.strides[i];
  }
  require(operand.view.offset >= 0 && last < phase.tensors[operand.view.tensor].elements());
}

void check_phase(const model::Phase& phase) {
  for (const model::Call& call : phase.calls) {
    require(call.step < phase.steps.size());
    call.problem.kernel().cost(call.problem);
    for (const model::Operand& operand : call.operands) check_operand(phase, operand);
  }
  const auto lives = model::lives_of(phase);
  // Every pair is compared: some tenths of a second for the most tensors, ten under instruments.
  if (lives.size() > 2000) return;
  const model::Arena arena = model::plan_arena(lives);
  for (std::size_t i = 0; i < lives.size(); ++i) {
    require(lives[i].spans.empty() || arena.offsets[i] + lives[i].bytes <= arena.bytes);
  }
  model::live_bytes(lives, phase.calls.size());
}

}  // namespace

void model_target(std::string_view input) {
  const model::ModelText text = model::read_model_text(input, "fuzz.txt");
  model::sizes_of(text);
  const model::Instance instance = model::instantiate(text, "", {}, all_kernels());
  for (const model::Phase& phase : instance.phases) check_phase(phase);
}

}  // namespace rooflane::fuzz
