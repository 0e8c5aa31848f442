// Timing of a unit's loop. See unit_peak.hpp.
#include "measure/unit_peak.hpp"

#include <algorithm>

#include "core/stopwatch.hpp"
#include "measure/together.hpp"

namespace rooflane {

double measure_unit_gflops(const UnitLoop& unit, int threads, double seconds) {
  // 0.4 to 0.8 ms: 24 products of vectors at one or two a cycle, or 4 of tiles at one in 16 cycles.
  constexpr std::int64_t steps = 100'000;
  const std::int64_t of_unit = unit.operations_per_step > 10'000 ? steps / 2 : steps;
  const double operations = unit.operations_per_step * static_cast<double>(of_unit) * threads;
  Together together(threads);
  const auto repeat = [&] { return together.run_ns([&](int) { unit.run(of_unit); }); };
  // As with the FMA peak: two untimed repeats for the clock, three timed ones at least.
  repeat();
  repeat();
  const Stopwatch watch;
  double best_ns = repeat();
  for (int n = 1; n < 3 || watch.seconds() < seconds; ++n) best_ns = std::min(best_ns, repeat());
  return operations / best_ns;
}

}  // namespace rooflane
