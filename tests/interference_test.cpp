// Steal, preemption and moved probes are seen in the counters that show them.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
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

TEST_CASE("involuntary switches, CPU time and waiting time come from a thread's files") {
  const auto thread =
      thread_counts("Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t345\n",
                    "5000000 123456 77\n");
  CHECK(thread.preempted == 345);
  CHECK(thread.used_ns == 5000000);
  CHECK(thread.waiting_ns == 123456);
  CHECK(thread_counts("", "").waiting_ns == 0);
}

TEST_CASE("a sample is disturbed when others took more than two per cent of its time") {
  // In 100 ms on two CPUs; each thread: involuntary switches, waiting and CPU time in ms.
  using Threads = std::vector<std::array<double, 3>>;
  const auto seen = [](double steal_ms, const Threads& threads, std::size_t cpus = 2) {
    InterferenceCounts before, after;
    before.steal_ns = 30e6;
    after.steal_ns = before.steal_ns + steal_ms * 1e6;
    after.now_ns = 100e6;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      const auto id = static_cast<std::int64_t>(i);
      before.threads[id] = {7, 5e6, 3e6};
      after.threads[id] = {7 + static_cast<std::int64_t>(threads[i][0]), 5e6 + threads[i][1] * 1e6,
                           3e6 + threads[i][2] * 1e6};
    }
    return interference_between(before, after, cpus);
  };
  CHECK(seen(0, {{0, 0, 100}, {0, 0, 100}}).empty());
  CHECK(seen(10, {{0, 0, 95}, {0, 0, 95}}) == "steal");
  CHECK(seen(3, {{0, 0, 99}, {0, 0, 98}}).empty());
  CHECK(seen(0, {{1, 4, 96}, {0, 0, 100}}) == "preempted");
  CHECK(seen(10, {{1, 4, 90}, {0, 0, 90}}) == "steal+preempted");
  // Waiting without a switch is a thread that was woken; a switch without waiting cost nothing.
  CHECK(seen(0, {{0, 4, 96}, {0, 0, 100}}).empty());
  CHECK(seen(0, {{4, 0.1, 99}, {0, 0, 100}}).empty());
  // A third thread that only sleeps does not count, one that runs takes the CPUs from the others.
  CHECK(seen(0, {{1, 4, 96}, {0, 0, 100}, {0, 0, 0.01}}) == "preempted");
  CHECK(seen(0, {{9, 40, 60}, {9, 40, 60}, {9, 20, 80}}).empty());
  CHECK(seen(0, {{9, 50, 50}, {9, 50, 50}}, 1).empty());
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
  CHECK(here.threads.contains(getpid()));
  CHECK(interference_counts({}, -1).threads.empty());
}
