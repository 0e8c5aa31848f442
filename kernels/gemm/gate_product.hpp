// gate=1: the first of its two products, by a plan of its own that leaves its sums here; what
// follows the second reads them (EpilogueJob::gate).
#pragma once

#include <memory>

#include "core/buffer.hpp"
#include "core/variant.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

// OwnPlan: the class of both plans.
template <class OwnPlan>
class GateProduct {
 public:
  // make(problem, constants): the plan of a product alone.
  template <class Make>
  GateProduct(const Problem& problem, const Operands& constants, const Make& make)
      : g_(problem), sums_(static_cast<std::size_t>(g_.batch * g_.m * g_.n) * sizeof(float)) {
    Problem product = problem;
    product.set("gate", 0.0);
    product.set("c_type", float32.short_name);
    Operands of_product;
    if (g_.prepack) of_product.set("b", half_of_b(constants.at("b"), g_.trans_b, 0));
    plan_ = make(product, of_product);
  }

  void bind(const Operands& operands) {
    Operands of_product;
    of_product.set("a", operands.at("a"));
    if (!g_.prepack) of_product.set("b", half_of_b(operands.at("b"), g_.trans_b, 0));
    of_product.set("c", view());
    plan_->bind(of_product);
  }
  void run() { plan_->run(); }

  const OwnPlan& plan() const { return *plan_; }
  Matrix<const float> sums() const { return const_matrix(view()); }
  void add_to(PlanFacts& facts) const {
    const PlanFacts own = plan_->facts();
    facts.workspace_bytes += sums_.bytes() + own.workspace_bytes;
    facts.packed_bytes += own.packed_bytes;
  }

 private:
  View view() const { return contiguous_view(sums_.data(), Shape{g_.batch, g_.m, g_.n}); }

  const Gemm g_;
  Buffer sums_;
  std::unique_ptr<OwnPlan> plan_;
};

// The columns of b that the plan itself multiplies with.
inline View own_part_of_b(const Gemm& g, const View& b) {
  return g.gate ? half_of_b(b, g.trans_b, 1) : b;
}

}  // namespace rooflane::gemm
