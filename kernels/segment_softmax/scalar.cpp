// Softmax by segment in plain loops: the baseline, with one thread and without auto-vectorisation.
// Every edge visits its segment's row in a table of maxima and in one of sums, which are in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/segment_softmax/segment_softmax.hpp"

namespace rooflane::segment_softmax {
namespace {

class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem),
        edges_(problem.size("edges")),
        cols_(problem.size("cols")),
        max_(static_cast<std::size_t>(problem.size("segments") * cols_)),
        sum_(max_.size()) {}

  void run() override {
    std::fill(max_.begin(), max_.end(), std::numeric_limits<float>::lowest());
    std::fill(sum_.begin(), sum_.end(), 0.0);
    // A NaN is not a maximum; the sum propagates it.
    for_each([](float x, float&, float& max, double&) { max = x > max ? x : max; });
    for_each([](float x, float& y, float& max, double& sum) {
      y = std::exp(x - max);
      sum += y;
    });
    for_each([](float, float& y, float&, double& sum) { y = static_cast<float>(y / sum); });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.workspace_bytes = max_.size() * (sizeof(float) + sizeof(double));
    return facts;
  }

 protected:
  void on_bind(const Operands&) override {}

 private:
  // body(x, y, its segment's maximum and sum) for every element.
  template <class Body>
  void for_each(Body body) {
    const View& x = bound_.at("x");
    const View& y = bound_.at("y");
    const auto* const segment = bound_.at("segment").as<std::int32_t>();
    for (std::int64_t e = 0; e < edges_; ++e) {
      const float* const from = x.f32() + e * x.strides[0];
      float* const to = y.f32() + e * y.strides[0];
      const auto first = static_cast<std::size_t>(segment[e] * cols_);
      for (std::int64_t j = 0; j < cols_; ++j) {
        const std::size_t at = first + static_cast<std::size_t>(j);
        body(from[j], to[j], max_[at], sum_[at]);
      }
    }
  }

  std::int64_t edges_, cols_;
  std::vector<float> max_;
  std::vector<double> sum_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return std::make_unique<ScalarPlan>(problem);
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, operand_types);

}  // namespace rooflane::segment_softmax
