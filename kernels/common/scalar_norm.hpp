// LayerNorm, or without a mean and beta RMSNorm, in plain loops over each row: the baseline, with
// one thread and without auto-vectorisation. Sums are in double, because a float32 sum of n terms
// may err by n roundings.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/float16.hpp"
#include "kernels/common/rows.hpp"

namespace rooflane::common {

template <bool kCentred, class T>
class ScalarNorm final : public Plan {
 public:
  explicit ScalarNorm(const Problem& problem)
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
    if (kCentred) beta_ = operands.at("beta").as<T>();
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
    double mean = 0;
    if constexpr (kCentred) {
      for (std::int64_t j = 0; j < cols_; ++j) mean += x[j];
      mean /= count;
    }
    double squares = 0;
    for (std::int64_t j = 0; j < cols_; ++j) squares += (x[j] - mean) * (x[j] - mean);
    const double scale = 1 / std::sqrt(squares / count + eps_);
    for (std::int64_t j = 0; j < cols_; ++j) {
      float value = static_cast<float>((x[j] - mean) * scale) * gamma_[j];
      if constexpr (kCentred) value += beta_[j];
      y[j] = static_cast<T>(value);
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
  const T* beta_ = nullptr;
};

template <bool kCentred>
std::unique_ptr<Plan> scalar_norm(const Problem& problem, const Tuning&, const Environment&,
                                  const Operands&) {
  return with_float_type(problem.dtype("type"), [&](auto type) -> std::unique_ptr<Plan> {
    return std::make_unique<ScalarNorm<kCentred, decltype(type)>>(problem);
  });
}

}  // namespace rooflane::common
