// A problem's line and a tuning: what is accepted prints as a tuning that reads back as itself, and
// a legal schedule keeps to the workspace that it may use.
#include "tests/fuzz/scheduled.hpp"

namespace rooflane::fuzz {

void schedule_target(std::string_view input) {
  const std::size_t end = input.find('\n');
  if (end == std::string_view::npos) return;
  const Kernel* const kernels[] = {&gemm::kernel};
  const Problem problem = parse_problem(input.substr(0, end), kernels);
  const Tuning tuning = parse_tuning(scheduled, input.substr(end + 1));
  require(parse_tuning(scheduled, tuning.text()).text() == tuning.text());
  require_tuning(scheduled, problem, {}, tuning);
  const gemm::Schedule schedule = schedule_of(problem, tuning);
  const gemm::Gemm g = gemm::as_row(gemm::Gemm(problem));
  require(gemm::rounded(schedule, g, micro_tile) == schedule);
  const gemm::Workspace workspace = gemm::workspace_of(schedule, g, micro_tile);
  require(workspace.shared >= 0 && workspace.of_thread >= 0);
}

}  // namespace rooflane::fuzz
