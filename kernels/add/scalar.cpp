// Addition in one plain loop, one thread, auto-vectorisation off: the baseline.
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/add/add.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/common/scalar_variant.hpp"

namespace rooflane::add {
namespace {

template <class T>
class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem), rows_(problem.size("rows")), cols_(problem.size("cols")) {}

  void run() override {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const T* x = io_.x + row * io_.x_stride;
      const T* r = r_ + row * r_stride_;
      T* y = io_.y + row * io_.y_stride;
      for (std::int64_t j = 0; j < cols_; ++j) y[j] = static_cast<T>(x[j] + r[j]);
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
    const View& r = operands.at("r");
    r_ = r.as<T>();
    r_stride_ = r.rank == 1 ? 0 : r.strides[0];
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  common::TypedRows<T> io_;
  const T* r_ = nullptr;
  std::int64_t r_stride_ = 0;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return with_float_type(problem.dtype("type"), [&](auto type) -> std::unique_ptr<Plan> {
    return std::make_unique<ScalarPlan<decltype(type)>>(problem);
  });
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, float_types);

}  // namespace rooflane::add
