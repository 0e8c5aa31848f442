// Steal, preemption and moved probes are seen in the counters that tell of them.
#include <doctest/doctest.h>
#include <unistd.h>

#include <vector>

#include "measure/interference.hpp"

using namespace rooflane;

namespace {

constexpr const char* stat =
    "cpu  1056140 22 88390 3011640 8860 0 9321 70 0 0\n"
    "cpu0 536510 11 44112 1500213 4305 0 8412 30 0 0\n"
    "cpu1 519630 11 44278 1511427 4555 0 909 40 0 0\n"
    "intr 130000\n";

}  // namespace

TEST_CASE("steal is counted on the CPUs in use only") {
  const std::vector<int> first = {0}, both = {0, 1};
  CHECK(steal_ticks(stat, {}) == 70);
  CHECK(steal_ticks(stat, first) == 30);
  CHECK(steal_ticks(stat, both) == 70);
  CHECK(steal_ticks("", both) == 0);
}

TEST_CASE("involuntary switches and waiting time come from a thread's files") {
  CHECK(involuntary_switches(
            "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t345\n") == 345);
  CHECK(involuntary_switches("") == 0);
  CHECK(waiting_time_ns("5000000 123456 77\n") == 123456);
  CHECK(waiting_time_ns("") == 0);
}

TEST_CASE("a sample is disturbed when others took more than one per cent of its time") {
  const InterferenceCounts before{10e6, 5, 1000, 0};
  CHECK(interference_between(before, {10e6, 5, 1000, 1e6}, 1).empty());
  // 10 ms of steal in 100 ms of two CPUs; 0.5 % of a longer time on one.
  CHECK(interference_between(before, {20e6, 5, 1000, 100e6}, 2) == "steal");
  CHECK(interference_between(before, {20e6, 5, 1000, 2000e6}, 1).empty());
  // Waiting without a switch is a thread that was woken; a switch without waiting cost nothing.
  CHECK(interference_between(before, {10e6, 6, 2e6, 100e6}, 1) == "preempted");
  CHECK(interference_between(before, {10e6, 5, 2e6, 100e6}, 1).empty());
  CHECK(interference_between(before, {10e6, 9, 1000, 100e6}, 1).empty());
  CHECK(interference_between(before, {20e6, 6, 50e6, 100e6}, 2) == "steal+preempted");
}

TEST_CASE("a probe has moved when it lies far off the others, never among the first four") {
  CHECK_FALSE(probe_moved({}));
  CHECK_FALSE(probe_moved(std::vector<double>{100, 100, 100, 200}));
  CHECK(probe_moved(std::vector<double>{100, 101, 99, 100, 120}));
  CHECK(probe_moved(std::vector<double>{100, 101, 99, 100, 80}));
  CHECK_FALSE(probe_moved(std::vector<double>{100, 101, 99, 100, 104}));
  // Where probes scatter by themselves, one more at their edge is nothing new.
  CHECK_FALSE(probe_moved(std::vector<double>{80, 120, 90, 110, 100, 125}));
}

TEST_CASE("a process that runs has counters, one that is gone has none") {
  const InterferenceCounts here = interference_counts({}, getpid());
  CHECK(here.now_ns > 0);
  CHECK(here.preempted >= 0);
  const InterferenceCounts gone = interference_counts({}, -1);
  CHECK(gone.preempted == 0);
  CHECK(gone.waiting_ns == 0);
}
