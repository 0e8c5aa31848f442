// Threads for all kernels: OpenMP by default, replaceable by the caller's own pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace rooflane {

// A non-owning reference to a callable: no allocation, one indirect call.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>>>
  FunctionRef(F&& f)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// Meeting point of the threads of one region. Spins: all of them run at once.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait();

 private:
  const int threads_;
  alignas(64) std::atomic<int> waiting_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
};

// One thread's place in a parallel region.
struct Team {
  int thread;   // 0 to threads-1
  int threads;  // how many really run; may be fewer than asked for
  Barrier* meeting;
  void barrier() const {
    if (threads > 1) meeting->wait();
  }
};

// Where threads come from. `run` calls body once on each of `threads` threads, all of them running
// at once, and returns when all have returned. Bodies must not throw. Thread-safe.
class Pool {
 public:
  virtual ~Pool() = default;
  virtual void run(int threads, FunctionRef<void(int thread, int threads)> body) = 0;
};

Pool& default_pool();               // OpenMP unless replaced
void set_default_pool(Pool* pool);  // null: OpenMP again. Not while a plan runs.

// body(const Team&) on each thread. With one thread it is called directly.
void parallel_region(Pool* pool, int threads, FunctionRef<void(const Team&)> body);

// body(task, thread) for every task in [0,tasks), handed out one by one to whoever is free: shared
// machines jitter. Fewer tasks than threads leave threads idle.
void parallel_for(Pool* pool, int threads, std::int64_t tasks,
                  FunctionRef<void(std::int64_t task, int thread)> body);

// Tasks in static chunks, with work stealing: every thread begins with a chunk of its own, the same
// one in each run, and steals tasks from others' chunks, one by one, when that is done. What a task
// reads and writes is then found in the caches of the core that had it last. More threads than
// chunks share some.
class StaticChunks {
 public:
  // As many chunks as threads, up to `most`; with one all threads take tasks in order.
  static constexpr int most = 64;
  StaticChunks(int chunks, std::int64_t tasks);

  // Before the first run, and again before another: while no thread works.
  void begin();
  // body(task) for the tasks of the calling thread's chunk and those that it steals.
  void work(int thread, FunctionRef<void(std::int64_t task)> body);

 private:
  // The next task that is free, on a cache line of its own.
  struct alignas(64) Chunk {
    std::atomic<std::int64_t> next;
    std::atomic<bool> begun;  // by its own thread, which will do what others leave
    std::int64_t end;
  };

  int count_;
  std::int64_t tasks_;
  Chunk chunks_[most];
};

// As parallel_for, with StaticChunks: one for each thread.
void parallel_for_static(Pool* pool, int threads, std::int64_t tasks,
                         FunctionRef<void(std::int64_t task, int thread)> body);

}  // namespace rooflane
