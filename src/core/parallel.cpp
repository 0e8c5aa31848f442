// Thread pools and parallel loops. See parallel.hpp.
#include "parallel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "phase_recorder.hpp"
#include "spin.hpp"
#include "thread_pool.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace rooflane {

namespace {

#ifdef _OPENMP

// GCC's OpenMP ends the threads that a region lacks, and starts as many for the next one that needs
// them. That takes longer than joining threads that have nothing to do in a hundred regions, so for
// as many they stay in the team.
class OpenMpPool final : public Pool {
 public:
  void run(int threads, FunctionRef<void(int, int)> body) override {
    thread_local KeptTeam kept;  // OpenMP has a team for each thread that begins regions
    const int team = kept.size_for(threads);
#pragma omp parallel num_threads(team)
    {
      const int thread = omp_get_thread_num();
      if (thread < threads) body(thread, std::min(threads, omp_get_num_threads()));
    }
  }

 private:
  class KeptTeam {
   public:
    // How many threads the next region has, if `threads` are to work.
    int size_for(int threads) {
      most_of_late_ = std::max(most_of_late_, threads);
      if (threads >= size_ || ++smaller_ > most_smaller) {
        size_ = std::exchange(most_of_late_, 0);
        smaller_ = 0;
      }
      return size_;
    }

   private:
    static constexpr int most_smaller = 100;
    int size_ = 1;
    int smaller_ = 0;       // regions since one of all threads
    int most_of_late_ = 0;  // threads that worked in one of these
  };
};

Pool& system_pool() {
  static OpenMpPool pool;
  return pool;
}

void bind_system_pool() {}  // OpenMP did when the program was loaded

#else

Pool& system_pool() { return thread_pool(); }

void bind_system_pool() { bind_thread_pool(); }

#endif

std::atomic<Pool*> chosen_pool{nullptr};

// body(thread, threads) on the pool's threads, with their phases where somebody records them.
void run_on(Pool* pool, int threads, FunctionRef<void(int, int)> body) {
  Pool& chosen = pool != nullptr ? *pool : default_pool();
  PhaseRecorder* const recorder = PhaseRegion::recorder();
  if (recorder == nullptr) {
    chosen.run(threads, body);
    return;
  }
  PhaseRegion region(*recorder, threads);
  chosen.run(threads, [&](int thread, int count) {
    region.enter(thread);
    body(thread, count);
    region.leave(thread);
  });
  region.end();
}

}  // namespace

Pool& default_pool() {
  Pool* chosen = chosen_pool.load(std::memory_order_acquire);
  return chosen != nullptr ? *chosen : system_pool();
}

void bind_default_pool() {
  const char* const wish = std::getenv("OMP_PROC_BIND");
  if (wish != nullptr && std::string_view(wish) != "false") bind_system_pool();
}

bool may_spin(int threads) {
#ifdef _OPENMP
  // Asked of OpenMP, since a thread that it bound to its place sees that CPU alone.
  static const int cpus = omp_get_num_procs();
  return threads <= cpus;
#else
  return threads <= usable_cpus();
#endif
}

void set_default_pool(Pool* pool) { chosen_pool.store(pool, std::memory_order_release); }

void Barrier::wait() {
  const PhaseTimer timer(RunPhase::wait);
  const unsigned phase = phase_.load(std::memory_order_acquire);
  if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    waiting_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  const auto met = [&] { return phase_.load(std::memory_order_acquire) != phase; };
  // A neighbour may have been descheduled on a shared machine: give the CPU away after a while.
  if (may_spin(threads_) && spin_until(met, spinning_patience)) return;
  while (!met()) std::this_thread::yield();
}

void parallel_region(Pool* pool, int threads, FunctionRef<void(const Team&)> body) {
  if (threads <= 1) {
    Barrier alone(1);
    body(Team{0, 1, &alone});
    return;
  }
  // How many really run is known only inside; whoever comes first sets the barrier up.
  struct Meeting {
    std::atomic<int> state{0};  // 0 none, 1 being made, 2 ready
    alignas(Barrier) std::byte storage[sizeof(Barrier)];
    Barrier* get(int count) {
      int expected = 0;
      if (state.compare_exchange_strong(expected, 1, std::memory_order_acq_rel)) {
        new (storage) Barrier(count);
        state.store(2, std::memory_order_release);
      }
      while (state.load(std::memory_order_acquire) != 2) relax();
      return std::launder(reinterpret_cast<Barrier*>(storage));
    }
  } meeting;
  run_on(pool, threads, [&](int thread, int count) {
    body(Team{thread, count, meeting.get(count)});
  });
}

void parallel_for(Pool* pool, int threads, std::int64_t tasks,
                  FunctionRef<void(std::int64_t, int)> body) {
  if (threads <= 1 || tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  alignas(64) std::atomic<std::int64_t> next{0};
  run_on(pool, threads, [&](int thread, int) {
    for (std::int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next.fetch_add(1, std::memory_order_relaxed)) {
      body(task, thread);
    }
  });
}

StaticChunks::StaticChunks(int chunks, std::int64_t tasks)
    : count_(static_cast<int>(
          std::clamp<std::int64_t>(std::min<std::int64_t>(chunks, tasks), 1, most))),
      tasks_(tasks) {
  begin();
}

void StaticChunks::begin() {
  for (int i = 0; i < count_; ++i) {
    chunks_[i].next.store(tasks_ * i / count_, std::memory_order_relaxed);
    chunks_[i].begun.store(false, std::memory_order_relaxed);
    chunks_[i].end = tasks_ * (i + 1) / count_;
  }
}

void StaticChunks::work(int thread, FunctionRef<void(std::int64_t)> body) {
  for (int i = 0; i < count_; ++i) {
    Chunk& chunk = chunks_[(thread + i) % count_];
    if (i == 0) chunk.begun.store(true, std::memory_order_relaxed);
    for (;;) {
      // Looking first leaves the line with the thread that works on it. Its last task is left to
      // it: a thief would hardly be done sooner, as it has to load the data first.
      const std::int64_t left = chunk.end - chunk.next.load(std::memory_order_relaxed);
      if (left <= 0) break;
      if (i > 0 && left == 1 && chunk.begun.load(std::memory_order_relaxed)) break;
      const std::int64_t task = chunk.next.fetch_add(1, std::memory_order_relaxed);
      if (task < chunk.end) body(task);
    }
  }
}

void parallel_for_static(Pool* pool, int threads, std::int64_t tasks,
                         FunctionRef<void(std::int64_t, int)> body) {
  if (threads <= 1 || tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  StaticChunks chunks(threads, tasks);
  run_on(pool, threads, [&](int thread, int) {
    chunks.work(thread, [&](std::int64_t task) { body(task, thread); });
  });
}

}  // namespace rooflane
