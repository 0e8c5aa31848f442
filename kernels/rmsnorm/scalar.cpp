// RMSNorm in two plain loops per row, one thread, auto-vectorisation off: the honest floor.
// The sum is kept in double, because a float32 sum of n terms may err by n roundings.
#include <cmath>
#include <vector>

#include "backends/scalar.hpp"
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

namespace rooflane::rmsnorm {
namespace {

template <class T>
class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        eps_(problem.value("eps")),
        sum_(problem.flag("residual") ? static_cast<std::size_t>(cols_) : 0) {}

  void run() override {
    for (std::int64_t row = 0; row < rows_; ++row) {
      T* y = io_.y + row * io_.y_stride;
      if (sum_.empty()) {
        normalise(io_.x + row * io_.x_stride, y);
      } else {
        add_residual(row);
        normalise(sum_.data(), y);
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.workspace_bytes = sum_.size() * sizeof(double);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = common::TypedRows<T>(operands);
    gamma_ = operands.at("gamma").as<T>();
    if (!sum_.empty()) {
      residual_ = operands.at("residual").as<T>();
      residual_stride_ = operands.at("residual").strides[0];
    }
  }

 private:
  // x + residual of a row.
  void add_residual(std::int64_t row) {
    const T* x = io_.x + row * io_.x_stride;
    const T* residual = residual_ + row * residual_stride_;
    for (std::int64_t j = 0; j < cols_; ++j) {
      sum_[j] = static_cast<double>(x[j]) + static_cast<double>(residual[j]);
    }
  }

  template <class X>
  void normalise(const X* x, T* y) const {
    const auto count = static_cast<double>(cols_);
    double squares = 0;
    for (std::int64_t j = 0; j < cols_; ++j) squares += static_cast<double>(x[j]) * x[j];
    const double scale = 1 / std::sqrt(squares / count + eps_);
    for (std::int64_t j = 0; j < cols_; ++j) {
      y[j] = static_cast<T>(static_cast<float>(x[j] * scale) * gamma_[j]);
    }
  }

  std::int64_t rows_;
  std::int64_t cols_;
  double eps_;
  std::vector<double> sum_;
  const T* residual_ = nullptr;
  std::int64_t residual_stride_ = 0;
  common::TypedRows<T> io_;
  const T* gamma_ = nullptr;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return with_float_type(problem.dtype("type"), [&](auto type) -> std::unique_ptr<Plan> {
    return std::make_unique<ScalarPlan<decltype(type)>>(problem);
  });
}

}  // namespace

const Variant scalar = {
    .name = "scalar",
    .kernel = &kernel,
    .backend = &scalar::backend,
    .threads = Threads::one,
    .tunables = {},
    .unsupported = nullptr,
    .tunings = no_tunings,
    .plan = plan,
    .dtypes = float_types,
};

}  // namespace rooflane::rmsnorm
