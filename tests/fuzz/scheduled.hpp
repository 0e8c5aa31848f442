// GEMM's `hwy` as far as its schedules go, for targets that read tunings: its tunables and what is
// legal, without the loops, which the fuzzers' build leaves out.
#pragma once

#include <string>

#include "core/backend.hpp"
#include "kernels/gemm/hwy_cost.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_schedule.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

inline constexpr gemm::MicroTile micro_tile{.lanes = 8, .mr = 6, .nv = 2, .most_nv = 4};  // AVX2

inline gemm::Schedule schedule_of(const Problem& problem, const Tuning& tuning) {
  return gemm::rounded(gemm::with({}, tuning), gemm::as_row(gemm::Gemm(problem)), micro_tile);
}

inline std::optional<std::string> schedule_defect(const Problem& problem, const Tuning& tuning,
                                                  const Environment& /*env*/) {
  return gemm::defect_of(schedule_of(problem, tuning), gemm::as_row(gemm::Gemm(problem)),
                         micro_tile);
}

inline std::vector<Tuning> schedule_guess(const Problem& /*problem*/, const Environment& /*env*/) {
  return {gemm::tuning_of({})};
}

inline const Backend scheduled_backend = {
    .name = "highway", .isa_named = [](const std::string& name) { return name; }};

inline const Variant scheduled = {.name = "hwy",
                                  .kernel = &gemm::kernel,
                                  .backend = &scheduled_backend,
                                  .threads = Threads::many,
                                  .tunables = gemm::schedule_tunables,
                                  .unsupported = nullptr,
                                  .tunings = schedule_guess,
                                  .plan = nullptr,
                                  .tuning_defect = schedule_defect};

}  // namespace rooflane::fuzz
