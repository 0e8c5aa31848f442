// Reading and checking of a product's epilogue. See epilogue.hpp.
#include "kernels/gemm/epilogue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::gemm {

using Op = Epilogue::Op;

Epilogue::Epilogue(const Problem& problem)
    : slope(static_cast<float>(problem.value("slope"))),
      low(static_cast<float>(problem.value("low"))),
      high(static_cast<float>(problem.value("high"))) {
  for (const std::size_t place : problem.chain("epilogue")) chain[count++] = static_cast<Op>(place);
}

bool Epilogue::has(Op op) const { return std::find(ops().begin(), ops().end(), op) != ops().end(); }

std::optional<common::Activation> activation_of(Op op) {
  using common::Activation;
  switch (op) {
    case Op::relu:
      return Activation::relu;
    case Op::gelu:
      return Activation::gelu;
    case Op::gelu_tanh:
      return Activation::gelu_tanh;
    case Op::silu:
      return Activation::silu;
    default:
      return std::nullopt;
  }
}

bool is_linear(const Epilogue& epilogue) {
  return std::all_of(epilogue.ops().begin(), epilogue.ops().end(),
                     [](Op op) { return op == Op::bias || op == Op::add; });
}

double exps_of(const Epilogue& epilogue) {
  return static_cast<double>(std::count_if(epilogue.ops().begin(), epilogue.ops().end(), [](Op op) {
    return op == Op::gelu || op == Op::gelu_tanh || op == Op::silu;
  }));
}

namespace {

// "epilogue=bias+gelu"; empty where the chain is.
std::string chain_text(const Epilogue& epilogue) {
  std::vector<std::string> words;
  for (const Op op : epilogue.ops()) words.emplace_back(Epilogue::names[static_cast<int>(op)]);
  return words.empty() ? std::string() : "epilogue=" + join(words, "+");
}

}  // namespace

void check_epilogue(const Problem& problem) {
  const Epilogue epilogue(problem);
  struct Reader {
    const char* param;
    Op op;
  };
  for (const auto& [param, op] :
       {Reader{"slope", Op::leaky_relu}, {"low", Op::clamp}, {"high", Op::clamp}}) {
    if (!problem.has(param) || epilogue.has(op)) continue;
    throw argument_error(fmt::format("{}={}: only {} of epilogue= reads it, which is not given",
                                     param, print_real(problem.value(param)),
                                     Epilogue::names[static_cast<int>(op)]));
  }
  if (epilogue.has(Op::clamp) && !(epilogue.low < epilogue.high)) {
    throw argument_error(fmt::format("low={}, high={}: allowed is low below high",
                                     print_real(problem.value("low")),
                                     print_real(problem.value("high"))));
  }
  if (!problem.flag("gate")) return;
  if (!epilogue.empty()) {
    throw argument_error(fmt::format("gate=1 with {}: allowed is none, as c is silu(a·gate)·(a·up)",
                                     chain_text(epilogue)));
  }
  if (problem.value("alpha") != 1 || problem.value("beta") != 0) {
    throw argument_error(
        fmt::format("gate=1 with alpha={}, beta={}: allowed are alpha=1 and beta=0, as c is of "
                    "second degree in b",
                    print_real(problem.value("alpha")), print_real(problem.value("beta"))));
  }
}

std::string epilogue_text(const Problem& problem) {
  return problem.flag("gate") ? "gate=1" : chain_text(Epilogue(problem));
}

void require_no_epilogue(const Problem& problem, const Tuning& step) {
  const std::string text = epilogue_text(problem);
  if (text.empty()) return;
  throw unavailable_error(
      fmt::format("{}: {}: rungs of the ladder compute the product alone", step.text(), text));
}

}  // namespace rooflane::gemm
