// Schedules that were planned in this process: the same problem has the same one, and to look it up
// takes less than the shortest run.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/traits.hpp"
#include "core/variant.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

// All that a choice depends on beside what the machine was measured to be.
struct PlannedFor {
  PlannedFor(const Gemm& g, const Environment& env, std::array<DType, 3> dtypes = {},
             unsigned units = 0)
      : sizes{g.m, g.n, g.k, g.batch, env.threads, traits_uses()},
        flags{g.trans_a,    g.trans_b,    g.prepack,       g.gate,
              g.reads_ab(), g.reads_c0(), g.has_epilogue()},
        types(dtypes),
        set(units),
        math(env.math),
        isa(env.isa) {}
  std::array<std::int64_t, 6> sizes;
  std::array<bool, 7> flags;
  std::array<DType, 3> types;
  unsigned set;
  std::string math, isa;
  friend auto operator<=>(const PlannedFor&, const PlannedFor&) = default;
};

template <class Choice>
class Planned {
 public:
  template <class Plan>
  Choice of(const PlannedFor& problem, const Plan& plan) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = choices_.find(problem);
      if (known != choices_.end()) return known->second;
    }
    const Choice choice = plan();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (choices_.size() == most) choices_.clear();
    choices_.emplace(problem, choice);
    return choice;
  }

 private:
  static constexpr std::size_t most = 4096;  // some hundred bytes each
  std::mutex mutex_;
  std::map<PlannedFor, Choice> choices_;
};

}  // namespace rooflane::gemm
