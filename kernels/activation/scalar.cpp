// Activation functions in one plain loop, by the C library, one thread, auto-vectorisation off: the
// baseline.
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/common/scalar_variant.hpp"

namespace rooflane::activation {
namespace {

template <class T, Kind kind>
class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        gate_(problem.flag("gate")) {}

  void run() override {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const T* x = io_.x + row * io_.x_stride;
      T* y = io_.y + row * io_.y_stride;
      if (gate_) {
        const T* g = g_ + row * g_stride_;
        for (std::int64_t j = 0; j < cols_; ++j)
          y[j] = T(common::activated_plainly(kind, x[j]) * g[j]);
      } else {
        for (std::int64_t j = 0; j < cols_; ++j) y[j] = T(common::activated_plainly(kind, x[j]));
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = common::TypedRows<T>(operands);
    if (!gate_) return;
    g_ = operands.at("g").as<T>();
    g_stride_ = operands.at("g").strides[0];
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  bool gate_;
  common::TypedRows<T> io_;
  const T* g_ = nullptr;
  std::int64_t g_stride_ = 0;
};

template <class T>
std::unique_ptr<Plan> plan_of(const Problem& problem) {
  switch (kind_of(problem)) {
    case Kind::relu:
      return std::make_unique<ScalarPlan<T, Kind::relu>>(problem);
    case Kind::gelu:
      return std::make_unique<ScalarPlan<T, Kind::gelu>>(problem);
    case Kind::gelu_tanh:
      return std::make_unique<ScalarPlan<T, Kind::gelu_tanh>>(problem);
    case Kind::silu:
      return std::make_unique<ScalarPlan<T, Kind::silu>>(problem);
    case Kind::tanh:
      break;
  }
  return std::make_unique<ScalarPlan<T, Kind::tanh>>(problem);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return with_float_type(problem.dtype("type"), [&](auto type) -> std::unique_ptr<Plan> {
    return plan_of<decltype(type)>(problem);
  });
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, float_types);

}  // namespace rooflane::activation
