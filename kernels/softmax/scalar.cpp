// Softmax in three plain loops per row: the baseline, with one thread and without
// auto-vectorisation. The sum is in double, because a float32 sum of n terms may err by n
// roundings. Shorter formats are converted element by element; a row of float32 keeps their exps.
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

template <class T>
class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        mask_rows_(problem.size("mask_rows")),
        scale_(problem.value("scale")),
        plain_(!option_refusal(problem)) {
    if (!in_place || !plain_) exps_.resize(static_cast<std::size_t>(cols_));
    if (!plain_) scaled_.resize(static_cast<std::size_t>(cols_));
  }

  void run() override {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const T* x = io_.x + row * io_.x_stride;
      T* y = io_.y + row * io_.y_stride;
      float* exps = exps_.data();
      if constexpr (in_place) {
        if (plain_) exps = y;
      }
      if (plain_) {
        normalise(x, exps, y);
      } else {
        const T* mask = mask_.data == nullptr ? nullptr : mask_row(row);
        for (std::int64_t j = 0; j < cols_; ++j) {
          scaled_[j] = scale_ * static_cast<double>(x[j]);
          if (mask != nullptr) scaled_[j] += static_cast<double>(mask[j]);
        }
        normalise(scaled_.data(), exps, y);
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.workspace_bytes = exps_.size() * sizeof(float) + scaled_.size() * sizeof(double);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = common::TypedRows<T>(operands);
    if (operands.has("mask")) mask_ = operands.at("mask");
  }

 private:
  const T* mask_row(std::int64_t row) const {
    return mask_.as<T>() + row % mask_rows_ * mask_.strides[0];
  }

  // y = softmax of x, exps on the way in `exps`, which may be x or y.
  template <class X>
  void normalise(const X* x, float* exps, T* y) const {
    using Value = std::conditional_t<std::is_same_v<X, double>, double, float>;
    Value max = -std::numeric_limits<Value>::infinity();
    for (std::int64_t j = 0; j < cols_; ++j)
      max = static_cast<Value>(x[j]) > max ? static_cast<Value>(x[j]) : max;
    double sum = 0;
    for (std::int64_t j = 0; j < cols_; ++j) {
      exps[j] = std::exp(static_cast<float>(static_cast<Value>(x[j]) - max));
      sum += exps[j];
    }
    const auto scale = static_cast<float>(1 / sum);
    for (std::int64_t j = 0; j < cols_; ++j) y[j] = static_cast<T>(exps[j] * scale);
  }

  static constexpr bool in_place = std::is_same_v<T, float>;
  std::int64_t rows_;
  std::int64_t cols_, mask_rows_;
  double scale_;
  bool plain_;  // neither scale nor mask
  View mask_;
  std::vector<float> exps_;
  std::vector<double>
      scaled_;  // what scale and mask make of a row, in double: it may leave float32
  common::TypedRows<T> io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return with_float_type(problem.dtype("type"), [&](auto type) -> std::unique_ptr<Plan> {
    return std::make_unique<ScalarPlan<decltype(type)>>(problem);
  });
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, float_types);

}  // namespace rooflane::softmax
