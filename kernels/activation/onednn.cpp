// Activation functions, variant `onednn`: one eltwise primitive, with gate=1 and a product behind
// it, on oneDNN's own threads. Nothing else is computed here; inputs with gaps between rows are
// copied first. Next: hwy.cpp for our own.
#include "backends/onednn.hpp"

#include <optional>
#include <string>

#include "generated_catalogue.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/common/rows.hpp"

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

class OnednnPlan final : public Plan {
 public:
  OnednnPlan(const Problem& problem, const Environment& env)
      : Plan(problem),
        rows_(problem.size("rows")),
        threads_(env.threads),
        is_gated_(problem.flag("gate")),
        io_(problem.size("rows"), problem.size("cols")) {
    if (rows_ == 0) return;
    onednn::set_threads(threads_);
    call_ = onednn::eltwise(io_.layout(), function_of(kind_of(problem)));
    if (!is_gated_) return;
    product_ = onednn::binary(dnnl::algorithm::binary_mul, io_.layout(), io_.layout());
  }

  void run() override {
    if (rows_ == 0) return;
    onednn::set_threads(threads_);
    if (is_gated_) product_.set(DNNL_ARG_SRC_1, gate_.values());
    io_.run(call_, is_gated_ ? &product_ : nullptr);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = onednn::description();
    facts.workspace_bytes =
        call_.scratch_bytes() + product_.scratch_bytes() + io_.bytes() + gate_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    const common::RowOperands io(operands);
    io_.bind(io.x, io.x_stride, io.y, io.y_stride);
    if (is_gated_) gate_.bind(operands.at("g"));
  }

 private:
  const std::int64_t rows_;
  const int threads_;
  const bool is_gated_;
  onednn::Rows io_;
  onednn::DenseInput gate_;
  onednn::Call call_, product_;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  // Its maximum drops a NaN, and what a run computes from NaN shows whether it reads its input.
  if (kind_of(problem) == Kind::relu) return "oneDNN's relu is 0 where x is NaN";
  return onednn::unsupported_anywhere(problem, env);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands&) {
  return std::make_unique<OnednnPlan>(problem, env);
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
