// The plan of kernels over rows that oneDNN computes by one primitive, or two, on its own threads.
// The rooms say which.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/onednn.hpp"
#include "kernels/common/rows.hpp"

namespace rooflane::common {

struct OnednnCalls {
  onednn::Call call;
  onednn::Call then = {};  // in place on what `call` gave; may be empty
  // The name of a tensor that is DNNL_ARG_SRC_1 of the last of them; empty: there is none.
  std::string second = {};
  // Further arguments of `call`: vectors by their names.
  std::vector<std::pair<int, std::string>> vectors = {};
};

class OnednnRowPlan final : public Plan {
 public:
  // `calls` makes them for rows that lie as it is told; not asked where there are no rows.
  OnednnRowPlan(const Problem& problem, const Environment& env,
                const std::function<OnednnCalls(const onednn::Desc&)>& calls)
      : Plan(problem),
        rows_(problem.size("rows")),
        threads_(env.threads),
        io_(rows_, problem.size("cols")) {
    if (rows_ == 0) return;
    onednn::set_threads(threads_);
    calls_ = calls(io_.layout());
  }

  void run() override {
    if (rows_ == 0) return;
    onednn::set_threads(threads_);
    if (!calls_.second.empty()) last().set(DNNL_ARG_SRC_1, second_.values());
    io_.run(calls_.call, calls_.then ? &calls_.then : nullptr);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = onednn::description();
    facts.workspace_bytes =
        calls_.call.scratch_bytes() + calls_.then.scratch_bytes() + io_.bytes() + second_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    if (rows_ == 0) return;
    const RowOperands io(operands);
    io_.bind(io.x, io.x_stride, io.y, io.y_stride);
    if (!calls_.second.empty()) second_.bind(operands.at(calls_.second));
    for (const auto& [argument, name] : calls_.vectors) {
      calls_.call.set(argument, operands.at(name).f32());
    }
  }

 private:
  onednn::Call& last() { return calls_.then ? calls_.then : calls_.call; }

  const std::int64_t rows_;
  const int threads_;
  onednn::Rows io_;
  onednn::DenseInput second_;
  OnednnCalls calls_;
};

constexpr Variant onednn_row_variant(const Kernel& kernel,
                                     decltype(Variant::unsupported) unsupported,
                                     decltype(Variant::plan) plan) {
  return {.name = "onednn",
          .kernel = &kernel,
          .backend = &onednn::backend,
          .threads = Threads::many,
          .tunables = {},
          .unsupported = unsupported,
          .tunings = no_tunings,
          .plan = plan};
}

}  // namespace rooflane::common
