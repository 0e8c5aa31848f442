// Placement and the span of a timed region. See together.hpp.
#include "measure/together.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/machine.hpp"

namespace rooflane {

Placed::Placed(int thread, int threads) {
  const std::vector<int>& cpus = machine().placement;
  if (static_cast<std::size_t>(threads) > cpus.size()) return;
  if (sched_getaffinity(0, sizeof before_, &before_) != 0 || CPU_COUNT(&before_) < 2) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cpus[static_cast<std::size_t>(thread)], &own);
  moved_ = sched_setaffinity(0, sizeof own, &own) == 0;
}

Placed::~Placed() {
  if (moved_) sched_setaffinity(0, sizeof before_, &before_);
}

double Together::span_ns(int running) const {
  if (running != threads()) {
    throw unavailable_error(
        fmt::format("threads: {} asked for, but only {} run at once here", threads(), running));
  }
  Clock::time_point first = times_[0].start;
  Clock::time_point last = times_[0].end;
  for (const Times& t : times_) {
    first = std::min(first, t.start);
    last = std::max(last, t.end);
  }
  // Work shorter than the clock's resolution counts as 1 ns, so that rates stay finite.
  return std::max(1.0, std::chrono::duration<double, std::nano>(last - first).count());
}

}  // namespace rooflane
