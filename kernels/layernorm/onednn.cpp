// LayerNorm, variant `onednn`: one layer normalization primitive with scale and shift over all
// rows, on oneDNN's own threads. Nothing else is computed here. Next: hwy.cpp for our own.
#include "generated_catalogue.hpp"
#include "kernels/common/onednn_rows.hpp"
#include "kernels/common/residual.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {
namespace {

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = common::residual_refusal(problem)) return reason;
  return onednn::unsupported_anywhere(problem, env);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands&) {
  const auto eps = static_cast<float>(problem.value("eps"));
  return std::make_unique<common::OnednnRowPlan>(problem, env, [=](const onednn::Desc& rows) {
    return common::OnednnCalls{.call = onednn::layer_normalization(rows, eps),
                               .vectors = {{DNNL_ARG_SCALE, "gamma"}, {DNNL_ARG_SHIFT, "beta"}}};
  });
}

}  // namespace

const Variant onednn = common::onednn_row_variant(kernel, unsupported, plan);

}  // namespace rooflane::layernorm
