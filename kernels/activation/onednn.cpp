// Activation functions, variant `onednn`: one eltwise primitive, with gate=1 and a product behind
// it, on oneDNN's own threads. Nothing else is computed here; inputs with gaps between rows are
// copied first. Next: hwy.cpp for our own.
#include <optional>
#include <string>

#include "generated_catalogue.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/common/onednn_rows.hpp"

namespace rooflane::activation {
namespace {

dnnl::algorithm function_of(Kind kind) {
  switch (kind) {
    case Kind::relu:  // unsupported
    case Kind::gelu:
      return dnnl::algorithm::eltwise_gelu_erf;
    case Kind::gelu_tanh:
      return dnnl::algorithm::eltwise_gelu_tanh;
    case Kind::silu:
      return dnnl::algorithm::eltwise_swish;
    case Kind::tanh:
      break;
  }
  return dnnl::algorithm::eltwise_tanh;
}

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  // Its maximum drops a NaN, and what a run computes from NaN shows whether it reads its input.
  if (kind_of(problem) == Kind::relu) return "oneDNN's relu is 0 where x is NaN";
  return onednn::unsupported_anywhere(problem, env);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands&) {
  return std::make_unique<common::OnednnRowPlan>(problem, env, [&](const onednn::Desc& rows) {
    common::OnednnCalls calls{.call = onednn::eltwise(rows, function_of(kind_of(problem)))};
    if (problem.flag("gate")) {
      calls.then = onednn::binary(dnnl::algorithm::binary_mul, rows, rows);
      calls.second = "g";
    }
    return calls;
  });
}

}  // namespace

const Variant onednn = {
    .name = "onednn",
    .kernel = &kernel,
    .backend = &onednn::backend,
    .threads = Threads::many,
    .tunables = {},
    .unsupported = unsupported,
    .tunings = no_tunings,
    .plan = plan,
};

}  // namespace rooflane::activation
