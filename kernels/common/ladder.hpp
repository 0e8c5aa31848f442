// What the rungs of all ladders share: one plan around a room's job and a function that works
// through it. The loops are in the room's ladder.cpp, plainest first. See Rung in core/variant.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/parallel.hpp"
#include "core/variant.hpp"

namespace rooflane::common {

// What every job has beside its own problem and operands.
struct Workers {
  Pool* pool = nullptr;
  int threads = 1;
  float* scratch = nullptr;         // scratch_floats per thread, 64-byte aligned
  std::int64_t scratch_floats = 0;  // whole cache lines
  float* of(int thread) const { return scratch + thread * scratch_floats; }
};

// A room's Job: made from the problem and the constants (from which it may pack); `workers`;
// `bind(operands)` takes the pointers; `packed()` is the memory of the constants it packed.
// Step: its function at one ISA target, and how much scratch that function needs per thread.
template <class Job>
struct Step {
  void (*run)(const Job&);
  std::int64_t (*scratch_floats)(const Job&) = nullptr;  // null: none
};

template <class Job>
class RungPlan final : public Plan {
 public:
  RungPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
           const Operands& constants, std::int64_t target, Step<Job> step)
      : Plan(problem), tuning_(tuning), target_(target), run_(step.run), job_(problem, constants) {
    Workers& workers = job_.workers;
    workers.pool = env.pool;
    workers.threads = env.threads > 1 ? env.threads : 1;
    if (step.scratch_floats == nullptr) return;
    constexpr std::int64_t line = 16;
    workers.scratch_floats = (step.scratch_floats(job_) + line - 1) / line * line;
    scratch_ = Buffer(static_cast<std::size_t>(workers.scratch_floats) *
                      static_cast<std::size_t>(workers.threads) * sizeof(float));
    workers.scratch = scratch_.f32();
  }

  void run() override { run_(job_); }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    if (!job_.packed().empty()) list.push_back(job_.packed());
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    facts.workspace_bytes = scratch_.bytes();
    facts.packed_bytes = job_.packed().size();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { job_.bind(operands); }

 private:
  Tuning tuning_;
  std::int64_t target_;
  void (*run_)(const Job&);
  Job job_;
  Buffer scratch_;
};

// The function of a rung: `steps_at` gives a room's steps, plainest first, at the environment's ISA
// target. A single place where a step becomes a plan.
template <class Job>
std::unique_ptr<Plan> plan_rung(const Problem& problem, const Tuning& tuning,
                                const Environment& env, const Operands& constants,
                                std::int64_t target, std::span<const Step<Job>> steps) {
  const auto step = static_cast<std::size_t>(tuning.get(step_key, 0));
  return std::make_unique<RungPlan<Job>>(problem, tuning, env, constants, target, steps[step]);
}

}  // namespace rooflane::common
