// See driver.hpp.
#include "kernels/gemm/driver.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"

namespace rooflane::gemm {
namespace {

// The columns of b that a plan itself multiplies with.
View own_part_of_b(const Gemm& g, const View& b) { return g.gate ? half_of_b(b, g.trans_b, 1) : b; }

class DriverPlan final : public Plan {
 public:
  DriverPlan(const Problem& problem, const Environment& env, const Operands& constants,
             const MakeProduct& make)
      : Plan(problem),
        g_(problem),
        forms_(g_.reads_ab() && !g_.empty()),
        store_tile_(store_function(resolve_isa(env.isa))),
        store_(g_, g_.has_epilogue() ? epilogue_function(resolve_isa(env.isa)) : nullptr),
        product_(make(problem, g_.prepack ? factors(constants) : ProductOperands())) {
    if (!g_.gate) return;
    // The first of two products leaves its sums here; what follows the second reads them.
    gate_sums_ = Buffer(static_cast<std::size_t>(g_.batch * g_.m * g_.n) * sizeof(float));
    Problem first = problem;
    first.set("gate", 0.0);
    first.set("c_type", float32.short_name);
    Operands of_first;
    if (g_.prepack) of_first.set("b", half_of_b(constants.at("b"), g_.trans_b, 0));
    gate_ = std::make_unique<DriverPlan>(first, env, of_first, make);
  }

  void run() override {
    if (gate_ != nullptr) gate_->run();
    if (forms_) return product_->run();
    for (std::int64_t batch = 0; batch < g_.batch && !g_.empty(); ++batch) {
      store_tile_(store_,
                  {{batch, 0, 0, g_.m, g_.n}, nullptr, 0, false, nullptr, nullptr, nullptr});
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    for (const DriverPlan* const plan : {this, static_cast<const DriverPlan*>(gate_.get())}) {
      if (plan != nullptr && !plan->product_->kept().empty())
        list.push_back(plan->product_->kept());
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts = product_->facts();
    if (gate_ == nullptr) return facts;
    const PlanFacts of_first = gate_->facts();
    facts.workspace_bytes += gate_sums_.bytes() + of_first.workspace_bytes;
    facts.packed_bytes += of_first.packed_bytes;
    return facts;
  }

 private:
  // The product's operands from the tensors.
  ProductOperands factors(const Operands& operands) const {
    ProductOperands list;
    if (operands.has("a")) list.a = view_of_a(g_, operands.at("a"));
    if (operands.has("b")) list.b = view_of_b(g_, own_part_of_b(g_, operands.at("b")));
    if (operands.has("b_scale")) list.b_scale = operands.at("b_scale").f32();
    return list;
  }

  void on_bind(const Operands& operands) override {
    Matrix<const float> sums;
    if (gate_ != nullptr) {
      const View view = contiguous_view(gate_sums_.data(), Shape{g_.batch, g_.m, g_.n});
      Operands of_first;
      of_first.set("a", operands.at("a"));
      if (!g_.prepack) of_first.set("b", half_of_b(operands.at("b"), g_.trans_b, 0));
      of_first.set("c", view);
      gate_->bind(of_first);
      sums = const_matrix(view);
    }
    store_.bind(operands, sums);
    product_->bind(factors(operands), store_);
  }

  const Gemm g_;
  const bool forms_;  // a product
  const StoreFunction store_tile_;
  StoreJob store_;
  const std::unique_ptr<Product> product_;
  Buffer gate_sums_;
  std::unique_ptr<DriverPlan> gate_;
};

}  // namespace

std::unique_ptr<Plan> driver_plan(const Problem& problem, const Environment& env,
                                  const Operands& constants, const MakeProduct& make) {
  return std::make_unique<DriverPlan>(problem, env, constants, make);
}

}  // namespace rooflane::gemm
