// The plan of softmax, LayerNorm and RMSNorm on Highway: whole rows for each thread, or each row
// shared by all. What a row becomes is the operation's (hwy.cpp of each room); how rows are shared
// and when they go past the caches is in rows.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/highway.hpp"
#include "core/parallel.hpp"
#include "hwy/detect_targets.h"
#include "kernels/common/rows.hpp"
#include "kernels/common/rows_schedule.hpp"

namespace rooflane::common {

// How rows are read and written.
struct RowAccess {
  bool beyond_caches = false;  // where x and y lie
  bool stream = false;         // y is written past the caches
  Prefetch prefetch = Prefetch::into_l1;
  bool halves = false;  // vectors of 512 bits are two halves to this core (halves_vectors)
};

// What an operation is made for.
struct RowSettings {
  const Problem& problem;
  const Tuning& tuning;
  int threads;
  bool split;
  std::int64_t target;
};

// An operation over rows:
//
//   Part                            the reductions over a part of a row; Part{} of an empty one
//   Op(settings)                    RowSettings
//   bind(operands), io()            io() returns the operands as AnyRows
//   start()                         runs once before the rows of each run
//   group()                         how many rows are best computed together
//   rows(range, thread, access)     computes whole rows
//   part(row, slice, access)        reduces a part of a row
//   merge(a, b)                     merges the reductions of two parts
//   finish(row, slice, part, whole, access)  writes a part of a row from its reductions
//   workspace_bytes()
//   work                            what a row costs: RowWork of rows_schedule.hpp
template <class Op>
class RowPlan final : public Plan {
 public:
  RowPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        split_(tuning.get("split", 0) != 0),
        threads_(RowSchedule(tuning).threads),
        pool_(env.pool),
        tuning_(tuning),
        target_(resolve_isa(env.isa)),
        op_({problem, tuning, threads_, split_, target_}),
        shared_(split_ ? 2 * static_cast<std::size_t>(threads_) : 0) {}

  void run() override {
    op_.start();
    if (split_) return run_split();
    // Small problems take less time than the divisions that cut them into pieces.
    if (threads_ == 1) {
      if (rows_ > 0) op_.rows({0, rows_}, 0, access_);
      return;
    }
    for_rows(pool_, threads_, rows_, cols_, op_.group(),
             [&](RowRange rows, int thread) { op_.rows(rows, thread, access_); });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    facts.workspace_bytes = op_.workspace_bytes() + shared_.size() * sizeof(shared_[0]);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    op_.bind(operands);
    const AnyRows& io = op_.io();
    access_.beyond_caches = tuning_.get("stream", 0) != 0;
    // In place the line is in cache already, and an ordinary store costs no further read.
    // Two targets have ordinary stores alone (kStreams of row-inl.h).
    const bool can_stream = target_ != HWY_SCALAR && target_ != HWY_SSE4;
    access_.stream = access_.beyond_caches && io.x != io.y && can_stream;
    access_.prefetch = prefetch_of(tuning_, rows_, cols_, io.x_stride);
    access_.halves = halves_vectors(isa_name(target_));
  }

 private:
  // Every row is cut into one part per thread planned; what is known of the parts meets once a row.
  // A thread may be one row ahead of another, hence two sets of parts.
  void run_split() {
    const int parts = threads_;
    parallel_region(pool_, threads_, [&](const Team& team) {
      const auto each_part = [&](auto&& body) {
        for (int part = team.thread; part < parts; part += team.threads) {
          body(part, slice_of_row(cols_, part, parts));
        }
      };
      for (std::int64_t row = 0; row < rows_; ++row) {
        Shared* shared = shared_.data() + (row % 2) * parts;
        each_part([&](int part, const Slice& slice) {
          shared[part].part = op_.part(row, slice, access_);
        });
        team.barrier();
        typename Op::Part whole{};
        for (int part = 0; part < parts; ++part) whole = Op::merge(whole, shared[part].part);
        each_part([&](int part, const Slice& slice) {
          op_.finish(row, slice, shared[part].part, whole, access_);
        });
      }
    });
  }

  struct alignas(64) Shared {  // a cache line each: written by different threads
    typename Op::Part part;
  };

  std::int64_t rows_, cols_;
  bool split_;
  int threads_;
  Pool* pool_;
  Tuning tuning_;
  std::int64_t target_;
  RowAccess access_;
  Op op_;
  std::vector<Shared> shared_;
};

// The record of variant `hwy`, which is *kSelf, with this plan.
template <class Op, const Kernel* kKernel, const Variant* kSelf>
constexpr Variant hwy_variant(std::span<const Rung> ladder = {}) {
  return {.name = "hwy",
          .kernel = kKernel,
          .backend = &highway::backend,
          .threads = Threads::many,
          .tunables = row_tunables,
          .unsupported = nullptr,
          .tunings = [](const Problem& problem,
                        const Environment& env) { return row_tunings(problem, env, Op::work); },
          .plan = [](const Problem& problem, const Tuning& tuning, const Environment& env,
                     const Operands&) -> std::unique_ptr<Plan> {
            const Tuning complete = complete_tuning(*kSelf, problem, env, tuning);
            return std::make_unique<RowPlan<Op>>(problem, complete, env);
          },
          .tuning_defect = threads_defect,
          .predicted_seconds =
              [](const Problem& problem, const Tuning& tuning, const Environment& env) {
                return predicted_row_seconds(problem, tuning, env, Op::work);
              },
          .ladder = ladder,
          .dtypes = float_types};
}

}  // namespace rooflane::common
