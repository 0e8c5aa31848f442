// Softmax, variant `onednn`: one softmax primitive (softmax_accurate) over all rows, on oneDNN's
// own threads. Nothing else is computed here. Next: hwy.cpp for our own.
// Values: oneDNN 2.6 clamps the argument of its exp, which turns NaN into a number: rows with NaN
// or infinities, or of nothing but -inf, come out otherwise than softmax.hpp says. It adds one
// lane's exps in float32, one after another: long rows are INACCURATE.
#include "backends/onednn.hpp"

#include "generated_catalogue.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

class OnednnPlan final : public Plan {
 public:
  OnednnPlan(const Problem& problem, const Environment& env)
      : Plan(problem),
        rows_(problem.size("rows")),
        threads_(env.threads),
        io_(problem.size("rows"), problem.size("cols")) {
    if (rows_ == 0) return;
    onednn::set_threads(threads_);
    call_ = onednn::softmax(io_.layout());
  }

  void run() override {
    if (rows_ == 0) return;
    onednn::set_threads(threads_);
    io_.run(call_);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = onednn::description();
    facts.workspace_bytes = call_.scratch_bytes() + io_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    const common::RowOperands io(operands);
    io_.bind(io.x, io.x_stride, io.y, io.y_stride);
  }

 private:
  const std::int64_t rows_;
  const int threads_;
  onednn::Rows io_;
  onednn::Call call_;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = option_refusal(problem)) return reason;
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

}  // namespace rooflane::softmax
