// Files of tuned schedules: what an accepted one gives a problem is complete and legal.
#include "core/tuned.hpp"
#include "tests/fuzz/scheduled.hpp"

namespace rooflane::fuzz {

void tuned_target(std::string_view input) {
  const TunedSchedules schedules = parse_tuned(input, all_kernels());
  const Kernel* const kernels[] = {&gemm::kernel};
  const Problem asked = parse_problem("gemm:m=64,n=48,k=100", kernels);
  for (const TunedEntry& entry : schedules.entries) {
    if (entry.problem) require(tuned_distance(*entry.problem, *entry.problem) == 0);
    Environment env;
    env.threads = entry.threads;
    env.isa = entry.isa;
    env.math = entry.math;
    const auto choice = find_tuned(schedules, "hwy", scheduled, asked, env);
    if (!choice) continue;
    require(choice->distance <= most_tuned_distance);
    require(!schedule_defect(asked, choice->tuning, env));
  }
}

}  // namespace rooflane::fuzz
