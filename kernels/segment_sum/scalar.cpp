// Sum by segment in plain loops: the baseline, with one thread and without auto-vectorisation. Each
// edge's row is added to that of its segment.
#include <algorithm>

#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/segment_sum/segment_sum.hpp"

namespace rooflane::segment_sum {
namespace {

class ScalarPlan final : public Plan {
 public:
  using Plan::Plan;

  void run() override {
    const View& x = bound_.at("x");
    const View& y = bound_.at("y");
    const auto* const segment = bound_.at("segment").as<std::int32_t>();
    const std::int64_t cols = y.cols();
    for (std::int64_t s = 0; s < y.shape[0]; ++s)
      std::fill_n(y.f32() + s * y.strides[0], cols, 0.0F);
    for (std::int64_t e = 0; e < x.shape[0]; ++e) {
      const float* const from = x.f32() + e * x.strides[0];
      float* const to = y.f32() + segment[e] * y.strides[0];
      for (std::int64_t j = 0; j < cols; ++j) to[j] += from[j];
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    return facts;
  }

 protected:
  void on_bind(const Operands&) override {}
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return std::make_unique<ScalarPlan>(problem);
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, operand_types);

}  // namespace rooflane::segment_sum
