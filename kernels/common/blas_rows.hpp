// The plan and the record of variants `blas` over rows: rows are shared among threads here, each
// calling a single-threaded BLAS. What a row becomes is the room's (blas.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "backends/cblas.hpp"
#include "core/variant.hpp"
#include "kernels/common/rows.hpp"

namespace rooflane::common {

// Row: Row(problem, library); bind(operands); row(i) computes row i; workspace_bytes().
template <class Row>
class BlasRowPlan final : public Plan {
 public:
  BlasRowPlan(const Problem& problem, const Environment& env)
      : Plan(problem),
        rows_(problem.size("rows")),
        threads_(static_cast<int>(std::min<std::int64_t>(
            rows_, useful_threads(env.threads, rows_, problem.size("cols"))))),
        pool_(env.pool),
        library_(cblas::open(env.library)),
        row_(problem, *library_) {}

  void run() override {
    parallel_region(pool_, threads_, [&](const Team& team) {
      library_->set_num_threads(1);
      const std::int64_t end = rows_ * (team.thread + 1) / team.threads;
      for (std::int64_t row = rows_ * team.thread / team.threads; row < end; ++row) row_.row(row);
    });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = library_->description;
    facts.workspace_bytes = row_.workspace_bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { row_.bind(operands); }

 private:
  std::int64_t rows_;
  int threads_;
  Pool* pool_;
  std::shared_ptr<const cblas::Library> library_;
  Row row_;
};

template <class Row>
constexpr Variant blas_variant(const Kernel& kernel, decltype(Variant::unsupported) unsupported) {
  return {.name = "blas",
          .kernel = &kernel,
          .backend = &cblas::backend,
          .threads = Threads::many,
          .tunables = {},
          .unsupported = unsupported,
          .tunings = no_tunings,
          .plan = [](const Problem& problem, const Tuning&, const Environment& env,
                     const Operands&) -> std::unique_ptr<Plan> {
            return std::make_unique<BlasRowPlan<Row>>(problem, env);
          }};
}

}  // namespace rooflane::common
