// See separate.hpp.
#include "kernels/gemm/separate.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/buffer.hpp"
#include "core/parallel.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

Problem product_of(Problem problem) {
  for (const char* name : {"epilogue", "gate"}) problem.set(name, 0.0);
  return problem;
}

// What a product of gate=1, or of none, is bound to: 0 gate, 1 up.
Operands operands_of(const Gemm& g, const Operands& operands, int half) {
  Operands own;
  for (const auto& [name, view] : operands.all()) {
    own.set(name, name == "b" && g.gate ? half_of_b(view, g.trans_b, half) : view);
  }
  return own;
}

class SeparatePlan final : public Plan {
 public:
  SeparatePlan(const Problem& problem, const Tuning& tuning, const Environment& env,
               EpilogueFunction function, const Operands& constants, const MakePlan& make)
      : Plan(problem),
        g_(problem),
        tuning_(tuning),
        threads_(std::max(env.threads, 1)),
        pool_(env.pool),
        function_(function) {
    for (const Epilogue::Op op : g_.epilogue.ops()) {
      passes_.emplace_back(g_).chain = Epilogue(op, g_.epilogue);
    }
    if (g_.gate) passes_.emplace_back(g_);
    const Problem product = product_of(problem);
    product_ = make(product, operands_of(g_, constants, 1));
    if (!g_.gate) return;
    gate_ = make(product, operands_of(g_, constants, 0));
    gate_sums_ = Buffer(static_cast<std::size_t>(g_.batch * g_.m * g_.n) * sizeof(float));
  }

  void run() override {
    if (gate_ != nullptr) gate_->run();
    product_->run();
    const std::int64_t rows = g_.batch * g_.m;
    for (const EpilogueJob& pass : passes_) {
      parallel_for_static(pool_, threads_, threads_, [&](std::int64_t share, int) {
        const std::int64_t end = rows * (share + 1) / threads_;
        for (std::int64_t row = rows * share / threads_; row < end; ++row) {
          function_(pass, {row / g_.m, row % g_.m, 0, 1, g_.n});
        }
      });
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = product_->regions();
    if (gate_ != nullptr) {
      for (const auto& region : gate_->regions()) list.push_back(region);
    }
    for (const auto& region : Plan::regions()) list.push_back(region);
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts = product_->facts();
    if (gate_ != nullptr) {
      const PlanFacts further = gate_->facts();
      facts.workspace_bytes += gate_sums_.bytes() + further.workspace_bytes;
      facts.packed_bytes += further.packed_bytes;
    }
    facts.tuning = tuning_;
    return facts;
  }

 private:
  void on_bind(const Operands& operands) override {
    product_->bind(operands_of(g_, operands, 1));
    for (EpilogueJob& pass : passes_) pass.bind(operands);
    if (gate_ == nullptr) return;
    Operands of_gate = operands_of(g_, operands, 0);
    const View sums = contiguous_view(gate_sums_.data(), Shape{g_.batch, g_.m, g_.n});
    of_gate.set("c", sums);
    gate_->bind(of_gate);
    passes_.front().gate = const_matrix(sums);
  }

  const Gemm g_;
  const Tuning tuning_;
  const int threads_;
  Pool* const pool_;
  const EpilogueFunction function_;
  // One over all of c for each function, by vectors and on all threads, as single kernels behind
  // the product would do it.
  std::vector<EpilogueJob> passes_;
  std::unique_ptr<Plan> product_, gate_;
  Buffer gate_sums_;
};

}  // namespace

std::unique_ptr<Plan> separate_plan(const Problem& problem, const Tuning& tuning,
                                    const Environment& env, EpilogueFunction function,
                                    const Operands& constants, const MakePlan& make) {
  return std::make_unique<SeparatePlan>(problem, tuning, env, function, constants, make);
}

}  // namespace rooflane::gemm
