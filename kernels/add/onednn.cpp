// Addition, variant `onednn`: one binary primitive, on oneDNN's own threads. Nothing else is
// computed here; inputs with gaps between rows are copied first. Next: hwy.cpp for our own.
#include "backends/onednn.hpp"

#include "generated_catalogue.hpp"
#include "kernels/add/add.hpp"
#include "kernels/common/rows.hpp"

namespace rooflane::add {
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
    const std::int64_t cols = problem.size("cols");
    const std::int64_t rows_of_r = problem.flag("broadcast") ? 1 : rows_;
    call_ = onednn::binary(dnnl::algorithm::binary_add, io_.layout(),
                           onednn::Rows(rows_of_r, cols).layout());
  }

  void run() override {
    if (rows_ == 0) return;
    onednn::set_threads(threads_);
    call_.set(DNNL_ARG_SRC_1, r_.values());
    io_.run(call_);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = onednn::description();
    facts.workspace_bytes = call_.scratch_bytes() + io_.bytes() + r_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    const common::RowOperands io(operands);
    io_.bind(io.x, io.x_stride, io.y, io.y_stride);
    r_.bind(operands.at("r"));
  }

 private:
  const std::int64_t rows_;
  const int threads_;
  onednn::Rows io_;
  onednn::DenseInput r_;
  onednn::Call call_;
};

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
    .unsupported = onednn::unsupported_anywhere,
    .tunings = no_tunings,
    .plan = plan,
};

}  // namespace rooflane::add
