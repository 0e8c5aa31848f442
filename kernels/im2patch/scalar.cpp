// Patches in plain loops, one thread, auto-vectorisation off: the baseline.
#include "backends/scalar.hpp"
#include "generated_catalogue.hpp"
#include "kernels/im2patch/im2patch.hpp"

namespace rooflane::im2patch {
namespace {

class ScalarPlan final : public Plan {
 public:
  using Plan::Plan;

  void run() override {
    const std::int64_t p = io_.patch;
    for (std::int64_t index = 0; index < bound_.at("patches").rows(); ++index) {
      float* to = io_.to(index);
      for (std::int64_t c = 0; c < io_.channels; ++c) {
        for (std::int64_t i = 0; i < p; ++i) {
          const float* const from = io_.from(index) + c * io_.channel_stride + i * io_.row_stride;
          for (std::int64_t j = 0; j < p; ++j) *to++ = from[j];
        }
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { io_ = Image(problem(), operands); }

 private:
  Image io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return std::make_unique<ScalarPlan>(problem);
}

}  // namespace

const Variant scalar = {.name = "scalar",
                        .kernel = &kernel,
                        .backend = &scalar::backend,
                        .threads = Threads::one,
                        .tunables = {},
                        .unsupported = nullptr,
                        .tunings = no_tunings,
                        .plan = plan};

}  // namespace rooflane::im2patch
