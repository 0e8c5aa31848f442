// What threads do during each step. See step_phases.hpp.
#include "model/step_phases.hpp"

#include <algorithm>

#include "core/phase_recorder.hpp"

namespace rooflane::model {

std::vector<StepPhases> step_phases(Chain& chain, std::size_t phase) {
  constexpr int runs = 5;
  const Phase& of = chain.phase(phase);
  const int threads = chain.settings().threads;
  PhaseRecorder recorder(threads, 0);
  std::vector<double> passed(of.steps.size()), packing(of.steps.size()), working(of.steps.size());
  for (int run = 0; run < runs; ++run) {
    for (std::size_t call = 0; call < of.calls.size(); ++call) {
      const std::size_t step = of.calls[call].step;
      recorder.begin();
      Chain::run_one(chain.runners(phase, call).front());
      recorder.end();
      const PhaseTimes times = recorder.times();
      passed[step] += times.wall_ns;
      for (const ThreadPhase& each : times.phases) {
        if (each.phase == RunPhase::wait || each.phase == RunPhase::start) continue;
        working[step] += each.ns;
        if (each.phase == RunPhase::pack) packing[step] += each.ns;
      }
    }
  }
  std::vector<StepPhases> result(of.steps.size());
  for (std::size_t step = 0; step < result.size(); ++step) {
    const double all = threads * passed[step];
    if (all <= 0) continue;
    result[step].packing_pct = 100 * packing[step] / all;
    result[step].waiting_pct = 100 * std::max(0.0, 1 - working[step] / all);
  }
  return result;
}

}  // namespace rooflane::model
