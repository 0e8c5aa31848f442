// Roofs of calls in a chain. See result.hpp.
#include <algorithm>
#include <limits>
#include <set>

#include "measure/roofline.hpp"
#include "model/result.hpp"

namespace rooflane::model {

double touched_bytes(const Phase& phase) {
  double bytes = 0;
  std::set<std::size_t> counted;
  for (const Call& call : phase.calls) {
    for (const Operand& operand : call.operands) {
      const Tensor& tensor = phase.tensors[operand.view.tensor];
      if (counted.insert(operand.view.tensor).second) bytes += tensor.bytes();
    }
  }
  return bytes;
}

namespace {

double element_bytes(DType dtype) {
  return static_cast<double>(dtype->block_bytes) / static_cast<double>(dtype->block);
}

// Elements that the view repeats by a stride of 0 lie in memory once.
double bytes_of(const Phase& phase, const Operand& operand) {
  double elements = 1;
  for (std::size_t i = 0; i < operand.view.shape.size(); ++i) {
    const bool repeated = operand.view.shape[i] > 1 && operand.view.strides[i] == 0;
    elements *= repeated ? 1 : static_cast<double>(operand.view.shape[i]);
  }
  return elements * element_bytes(phase.tensors[operand.view.tensor].dtype);
}

// Compulsory bytes of a call, those of weights apart.
struct CallBytes {
  double weights = 0, others = 0;
};

CallBytes bytes_of(const Phase& phase, const Call& call) {
  CallBytes bytes;
  double counted = call.problem.kernel().cost(call.problem).bytes;
  for (const Operand& operand : call.operands) {
    const double own = bytes_of(phase, operand);
    counted -= static_cast<double>(operand.view.elements()) *
                   element_bytes(phase.tensors[operand.view.tensor].dtype) -
               own;
    const bool weight = phase.tensors[operand.view.tensor].kind == Tensor::Kind::weight;
    (weight ? bytes.weights : bytes.others) += own;
  }
  // A kernel may count less than its tensors hold: of a table the rows that are read.
  counted = std::max(counted, 0.0);
  bytes.others = std::clamp(bytes.others, 0.0, counted);
  bytes.weights = std::clamp(bytes.weights, 0.0, counted - bytes.others);
  return bytes;
}

}  // namespace

std::optional<CallRoof> roof_of(const Phase& phase, const Call& call, const Ceilings& ceilings,
                                const std::string& math, const PlanFacts& facts, int threads,
                                bool cold_weights) {
  const Cost cost = call.problem.kernel().cost(call.problem);
  const std::string isa = facts.isa == "baseline" ? "" : facts.isa;
  const auto peak = find_compute_peak(ceilings, math, isa, threads, "", facts.path);
  const CallBytes bytes = bytes_of(phase, call);
  const double cold = cold_weights ? bytes.weights : 0;
  const double warm = bytes.weights + bytes.others - cold;
  constexpr double beyond_all_caches = std::numeric_limits<double>::infinity();
  const auto memory = find_memory_peak(ceilings, beyond_all_caches, 0, threads, "");
  const double written = warm > 0 ? write_fraction(call.problem) * cost.bytes / warm : 0;
  const auto caches = find_memory_peak(ceilings, warm, std::min(written, 1.0), threads, "");
  if (!peak || !memory || !caches || *peak <= 0 || memory->gb_s <= 0 || caches->gb_s <= 0) {
    return std::nullopt;
  }
  const double compute_ns = cost.flops / *peak;
  const double memory_ns = cold / memory->gb_s + warm / caches->gb_s;
  return CallRoof{std::max(compute_ns, memory_ns), compute_ns >= memory_ns};
}

}  // namespace rooflane::model
