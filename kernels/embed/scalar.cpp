// Embedding in two plain loops, one thread, auto-vectorisation off: the baseline.
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/embed/embed.hpp"

namespace rooflane::embed {
namespace {

template <class T>
float element(const std::byte* row, std::int64_t col) {
  return reinterpret_cast<const T*>(row)[col];
}
template <>
float element<BlockQ8>(const std::byte* row, std::int64_t col) {
  const BlockQ8& block = reinterpret_cast<const BlockQ8*>(row)[col / BlockQ8::length];
  const auto scale = static_cast<float>(Float16::Format::value(block.scale));
  return scale * block.values[col % BlockQ8::length];
}

template <class T>
class ScalarPlan final : public Plan {
 public:
  using Plan::Plan;

  void run() override {
    for (std::int64_t i = 0; i < problem().size("n"); ++i) {
      const std::byte* const row = io_.row_of(i);
      float* const y = io_.y + i * io_.y_stride;
      for (std::int64_t j = 0; j < io_.cols; ++j) y[j] = element<T>(row, j);
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { io_ = Gather(operands); }

 private:
  Gather io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  const DType type = problem.dtype("table_type");
  if (type == &q8_0) return std::make_unique<ScalarPlan<BlockQ8>>(problem);
  return with_float_type(type, [&](auto stored) -> std::unique_ptr<Plan> {
    return std::make_unique<ScalarPlan<decltype(stored)>>(problem);
  });
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, operand_types);

}  // namespace rooflane::embed
