// The pool of threads of our own: regions one after another, at once and nested, forks, the end.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "core/parallel.hpp"
#include "core/thread_pool.hpp"

using namespace rooflane;

namespace {

// A sum that needs all threads: each adds its number plus one, meets the others, and reads it.
bool region_is_right(int threads) {
  std::atomic<int> sum{0};
  std::atomic<bool> right{true};
  parallel_region(&thread_pool(), threads, [&](const Team& team) {
    sum += team.thread + 1;
    team.barrier();
    if (team.threads != threads || sum != threads * (threads + 1) / 2) right = false;
  });
  return right;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

bool is_child = false;

// The exit status of a child that runs `body`; killed when only a hang lasts so long.
template <class ChildBody>
int status_of_child(ChildBody body) {
  const pid_t child = fork();
  if (child == 0) {
    is_child = true;
    alarm(300);
    body();
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

#ifdef __SANITIZE_ADDRESS__
// Called by the sanitizer: in a forked child it cannot stop the threads before it searches their
// memory.
extern "C" int __lsan_is_turned_off();  // NOLINT(bugprone-reserved-identifier)
int __lsan_is_turned_off() { return is_child; }
#endif

TEST_CASE("each thread of a region runs once, and all of them at once") {
  for (const int threads : {2, 3, 1, 8, 4, 2, 17}) {
    CAPTURE(threads);
    for (int round = 0; round < 50; ++round) REQUIRE(region_is_right(threads));
  }
}

TEST_CASE("threads that are bound have a CPU each") {
  const int cpus = usable_cpus();
  const int status = status_of_child([cpus] {
    bind_thread_pool();
    std::atomic<int> alone{0};
    std::mutex mutex;
    std::set<int> places;
    parallel_region(&thread_pool(), cpus, [&](const Team&) {
      cpu_set_t own;
      sched_getaffinity(0, sizeof own, &own);
      if (CPU_COUNT(&own) == 1) ++alone;
      const std::lock_guard<std::mutex> lock(mutex);
      places.insert(sched_getcpu());
    });
    _exit(alone == cpus && static_cast<int>(places.size()) == cpus ? 0 : 1);
  });
  CHECK(status == 0);
}

TEST_CASE("threads stay from one region to the next") {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  for (int round = 0; round < 100; ++round) {
    parallel_region(&thread_pool(), 3, [&](const Team&) {
      const std::lock_guard<std::mutex> lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
  }
  CHECK(ids.size() == 3);
}

TEST_CASE("callers on several threads have regions of their own") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) wrong += region_is_right(3) ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

TEST_CASE("a region inside a region has threads of its own") {
  std::atomic<int> right{0};
  parallel_region(&thread_pool(), 3, [&](const Team&) { right += region_is_right(2) ? 1 : 0; });
  CHECK(right == 3);
}

TEST_CASE("idle threads sleep") {
  REQUIRE(region_is_right(4));
  // They may spin at first, and on a busy machine that takes a while. Who never sleeps uses all
  // of a CPU each time.
  double used = 1;
  for (int look = 0; look < 50 && used >= 0.01; ++look) {
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    used = cpu_seconds() - before;
  }
  CHECK(used < 0.01);
}

// Threads after a fork of a process with several are more than the thread sanitizer allows.
#ifndef __SANITIZE_THREAD__

TEST_CASE("a forked child has threads of its own") {
  REQUIRE(region_is_right(4));
  const int status =
      status_of_child([] { _exit(region_is_right(4) && region_is_right(2) ? 0 : 1); });
  CHECK(status == 0);
  CHECK(region_is_right(4));
}

TEST_CASE("a process ends while regions run on another thread") {
  const int status = status_of_child([] {
    std::atomic<int> rounds{0};
    std::thread endless([&] {
      for (;;) rounds += region_is_right(2) ? 1 : 0;
    });
    while (rounds < 10) std::this_thread::yield();
    std::exit(0);  // NOLINT(concurrency-mt-unsafe): what is tested
  });
  CHECK(status == 0);
}

#endif

TEST_CASE("threads that wait do their idle work, and come when a region calls") {
  if (usable_cpus() < 2) return;  // then the default pool's threads run
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  REQUIRE(
      (policy == nullptr || std::string_view(policy) != "passive"));  // they would sleep at once
  std::atomic<int> steps{0};
  const std::unique_ptr<Pool> pool = pool_with_idle_work([&](int) {
    ++steps;
    return true;  // never done: a region must not wait for that
  });
  for (int region = 0; region < 100; ++region) {
    std::atomic<int> sum{0};
    pool->run(2, [&](int thread, int threads) {
      sum += 10 * threads + thread;
      // One inside another has threads all the same.
      if (thread == 0 && region == 50) {
        pool->run(2, [&](int inner, int) { sum += 100 * (inner + 1); });
      }
    });
    CHECK(sum == (region == 50 ? 341 : 41));
  }
  const int before = steps;
  pool->run(2, [&](int thread, int) {
    while (thread == 0 && steps == before) std::this_thread::yield();  // for the other one's wait
  });
  CHECK(steps > before);
}

TEST_CASE("the CPUs that may be used are counted") {
  CHECK(usable_cpus() >= 1);
  CHECK(usable_cpus() <= static_cast<int>(std::thread::hardware_concurrency()));
}
