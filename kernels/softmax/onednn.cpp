// Softmax, variant `onednn`: one softmax primitive (softmax_accurate) over all rows, on oneDNN's
// own threads. Nothing else is computed here. Next: hwy.cpp for our own.
// Values: oneDNN 2.6 clamps the argument of its exp, which turns NaN into a number: rows with NaN
// or infinities, or of nothing but -inf, come out otherwise than softmax.hpp says. It adds one
// lane's exps in float32, one after another: long rows are INACCURATE.
#include "generated_catalogue.hpp"
#include "kernels/common/onednn_rows.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = option_refusal(problem)) return reason;
  return onednn::unsupported_anywhere(problem, env);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands&) {
  return std::make_unique<common::OnednnRowPlan>(problem, env, [](const onednn::Desc& rows) {
    return common::OnednnCalls{.call = onednn::softmax(rows)};
  });
}

}  // namespace

const Variant onednn = common::onednn_row_variant(kernel, unsupported, plan);

}  // namespace rooflane::softmax
