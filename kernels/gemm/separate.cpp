// GEMM, the last rung of hwy's ladder: what hwy fuses, done apart. The product alone at the
// schedule that hwy has for it, then the epilogue's functions, each a pass through memory;
// `bench --fusion` holds it against hwy. Without an epilogue it is hwy itself. Next: hwy.cpp.
#include <memory>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/epilogue_passes.hpp"
#include "kernels/gemm/ladder.hpp"

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
  SeparatePlan(const Problem& problem, const Tuning& step, const Environment& env,
               const Operands& constants)
      : Plan(problem),
        g_(problem),
        step_(step),
        passes_(g_, env.threads, env.pool, epilogue_function(resolve_isa(env.isa))) {
    const Problem product = product_of(problem);
    product_ = make_plan(hwy, product, {}, env, operands_of(g_, constants, 1));
    if (!g_.gate) return;
    gate_ = make_plan(hwy, product, {}, env, operands_of(g_, constants, 0));
    gate_sums_ = Buffer(static_cast<std::size_t>(g_.batch * g_.m * g_.n) * sizeof(float));
  }

  void run() override {
    if (gate_ != nullptr) gate_->run();
    product_->run();
    passes_.run();
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
    facts.tuning = step_;
    return facts;
  }

 private:
  void on_bind(const Operands& operands) override {
    product_->bind(operands_of(g_, operands, 1));
    if (gate_ == nullptr) {
      passes_.bind(operands);
      return;
    }
    Operands of_gate = operands_of(g_, operands, 0);
    const View sums = contiguous_view(gate_sums_.data(), Shape{g_.batch, g_.m, g_.n});
    of_gate.set("c", sums);
    gate_->bind(of_gate);
    passes_.bind(operands, const_matrix(sums));
  }

  const Gemm g_;
  const Tuning step_;
  EpiloguePasses passes_;
  std::unique_ptr<Plan> product_, gate_;
  Buffer gate_sums_;
};

}  // namespace

std::unique_ptr<Plan> separate_plan(const Problem& problem, const Tuning& step,
                                    const Environment& env, const Operands& constants) {
  return std::make_unique<SeparatePlan>(problem, step, env, constants);
}

}  // namespace rooflane::gemm
