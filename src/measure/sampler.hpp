// The sampler: how one slot is timed. It owns the loop around a run and knows nothing of plans,
// workers or rounds. The clock is a parameter, so that tests need not depend on real time.
#pragma once

#include <cstdint>

#include "core/parallel.hpp"

namespace rooflane {

using RunCall = FunctionRef<void()>;
using Clock = FunctionRef<double()>;  // nanoseconds, never falling

struct SteadyClock {
  double operator()() const;
};
inline constexpr SteadyClock steady_clock_ns;

// A warm sample lasts at least this long: the clock's own cost (about 25 ns) and a single timer
// interrupt (a few microseconds) stay below 1 %.
inline constexpr double least_sample_ns = 1e6;

// Runs untimed until two successive runs agree within 5 %. Bounded: at most 20 runs, and none is
// begun when 5 ms have passed (a longer run has warmed caches and clock up by itself). Returns
// the last run's time in ns.
double warm_up(RunCall run, Clock now);

// Mean time in ns of one of `runs` back-to-back runs.
double time_runs(RunCall run, std::int64_t runs, Clock now);

// Time in ns of one warm run that nothing disturbed: after warm_up the least of up to five timings,
// each of a quarter sample or one run. A thread preempted for a few milliseconds would otherwise
// leave a 30 µs run with one run a sample for good; five timings in a row it seldom meets. None is
// begun later than 50 ms less a run, as what lasts that long is disturbed little.
double undisturbed_run_ns(RunCall run, Clock now);

// How many back-to-back runs make a warm sample of at least least_sample_ns. At least 1.
std::int64_t runs_for_sample(double run_ns);

// What reading the clock twice adds to a time, in ns: the median of many readings.
double clock_cost_ns(Clock now);

// Waits until a CPU clock is still: it advances less than 5 % of real time over 1 ms. Gives up
// after `seconds`; returns whether it was still. `cpu_now` is in ns.
bool wait_until_still(Clock cpu_now, double seconds);

}  // namespace rooflane
