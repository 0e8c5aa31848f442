// libFuzzer's entry for model files: whatever the text is, it is a model or refused with an Error
// in one line, and all that a model's calls are given lies within its tensors. No kernel runs and
// no tensor is allocated. Built and run by scripts/fuzz.sh, which writes the list of kernels.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "model/arena.hpp"
#include "model/instance.hpp"

namespace {

using namespace rooflane;

void require(bool holds) {
  if (!holds) std::abort();
}

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

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kernels = std::size(generated::kernels) - 1;  // a null pointer ends them
  try {
    const model::ModelText text =
        model::read_model_text({reinterpret_cast<const char*>(data), size}, "fuzz.txt");
    model::sizes_of(text);
    const model::Instance instance =
        model::instantiate(text, "", {}, std::span(generated::kernels, kernels));
    for (const model::Phase& phase : instance.phases) check_phase(phase);
  } catch (const Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
