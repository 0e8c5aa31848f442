// Softmax in three plain loops per row, one thread, auto-vectorisation off: the honest floor.
// The sum is kept in double, because a float32 sum of n terms may err by n roundings.
#include <cmath>
#include <limits>

#include "backends/scalar.hpp"
#include "generated_catalogue.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem), rows_(problem.size("rows")), cols_(problem.size("cols")) {}

  void run() override {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const float* x = io_.x + row * io_.x_stride;
      float* y = io_.y + row * io_.y_stride;
      float max = -std::numeric_limits<float>::infinity();
      for (std::int64_t j = 0; j < cols_; ++j) max = x[j] > max ? x[j] : max;
      double sum = 0;
      for (std::int64_t j = 0; j < cols_; ++j) {
        y[j] = std::exp(x[j] - max);
        sum += y[j];
      }
      const auto scale = static_cast<float>(1 / sum);
      for (std::int64_t j = 0; j < cols_; ++j) y[j] *= scale;
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { io_ = common::RowOperands(operands); }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  common::RowOperands io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return std::make_unique<ScalarPlan>(problem);
}

}  // namespace

const Variant scalar = {
    .name = "scalar",
    .kernel = &kernel,
    .backend = &scalar::backend,
    .threads = Threads::one,
    .tunables = {},
    .unsupported = other_math,
    .tunings = no_tunings,
    .plan = plan,
};

}  // namespace rooflane::softmax
