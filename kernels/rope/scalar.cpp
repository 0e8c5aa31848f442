// Rotary position embedding in plain loops over a table of cosines and sines, one thread,
// auto-vectorisation off: the baseline.
#include <algorithm>

#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/rope/rope.hpp"

namespace rooflane::rope {
namespace {

template <class T>
class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem) : Plan(problem), sizes_(problem), table_(sizes_) {}

  void run() override {
    for (std::int64_t b = 0; b < sizes_.batch; ++b) {
      for (std::int64_t h = 0; h < sizes_.heads; ++h) {
        for (std::int64_t p = 0; p < sizes_.len; ++p) {
          const T* const x = io_.x_row(b, h, p);
          T* const y = io_.y_row(b, h, p);
          if (h < sizes_.rotated) {
            rotate(x, y, p * sizes_.half());
          } else {
            std::copy_n(x, sizes_.head_dim, y);
          }
        }
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.workspace_bytes = 2 * sizeof(float) * table_.cos.size();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { io_ = RopeOperands<T>(operands); }

 private:
  void rotate(const T* x, T* y, std::int64_t entry) const {
    const bool is_half = sizes_.style == Style::half;
    for (std::int64_t i = 0; i < sizes_.half(); ++i, ++entry) {
      const std::int64_t a = is_half ? i : 2 * i, b = is_half ? i + sizes_.half() : 2 * i + 1;
      const auto at = static_cast<std::size_t>(entry);
      const float cos = table_.cos[at], sin = table_.sin[at], first = x[a], second = x[b];
      y[a] = static_cast<T>(first * cos - second * sin);
      y[b] = static_cast<T>(second * cos + first * sin);
    }
  }

  Sizes sizes_;
  Table table_;
  RopeOperands<T> io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return with_float_type(problem.dtype("type"), [&](auto type) -> std::unique_ptr<Plan> {
    return std::make_unique<ScalarPlan<decltype(type)>>(problem);
  });
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, float_types);

}  // namespace rooflane::rope
