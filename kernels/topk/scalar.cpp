// The largest elements in plain loops, one thread, auto-vectorisation off: the baseline. The
// largest elements so far are in a sorted list, into which larger ones are inserted.
#include <vector>

#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/topk/topk.hpp"

namespace rooflane::topk {
namespace {

class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        k_(problem.size("k")),
        found_(static_cast<std::size_t>(k_)) {}

  void run() override {
    for (std::int64_t row = 0; row < rows_; ++row) {
      const float* const x = io_.x + row * io_.x_stride;
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < cols_; ++i) {
        const Found element = {x[i], static_cast<std::int32_t>(i)};
        if (count == k_ && !before(element, found_.back())) continue;
        if (count < k_) ++count;
        std::int64_t place = count - 1;
        for (; place > 0 && before(element, at(place - 1)); --place) at(place) = at(place - 1);
        at(place) = element;
      }
      io_.write(row, found_.data(), k_);
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.workspace_bytes = found_.size() * sizeof(found_[0]);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { io_ = Rows(operands); }

 private:
  Found& at(std::int64_t place) { return found_[static_cast<std::size_t>(place)]; }

  std::int64_t rows_, cols_, k_;
  std::vector<Found> found_;
  Rows io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return std::make_unique<ScalarPlan>(problem);
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, operand_types);

}  // namespace rooflane::topk
