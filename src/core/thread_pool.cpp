// Crews of threads that wait for regions. See thread_pool.hpp.
#include "thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "spin.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace rooflane {

namespace {

using Body = FunctionRef<void(int, int)>;

// CPUs that this process may run on, as its affinity was when this was first called.
const std::vector<int>& process_cpus() {
  static const std::vector<int> found = [] {
    std::vector<int> cpus;
    // The first thread's, since one that calls this may be bound to its place.
    cpu_set_t usable;
    if (sched_getaffinity(getpid(), sizeof usable, &usable) == 0) {
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &usable)) cpus.push_back(cpu);
      }
    }
    return cpus;
  }();
  return found;
}

std::atomic<bool> bound{false};

// Binds the calling thread, which is this one of a region, where threads are bound.
void take_place(int thread) {
  const std::vector<int>& cpus = process_cpus();
  if (!bound.load(std::memory_order_acquire) || cpus.empty()) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(cpus[static_cast<std::size_t>(thread) % cpus.size()], &own);
  sched_setaffinity(0, sizeof own, &own);
}

// For a pool with regions that follow one another for seconds: longer than the pauses between them,
// and than the scheduler's time slice. Linux may wake a thread on the CPU of the one that spins for
// it.
constexpr std::chrono::microseconds long_patience{5000};

bool waits_passively() {
  static const bool passive = [] {
    const char* policy = std::getenv("OMP_WAIT_POLICY");
    return policy != nullptr && std::string_view(policy) == "passive";
  }();
  return passive;
}

// Works until `done` or until nothing is left to do; then, where `spins`, spins. Whether it is
// done.
template <class Done, class Work>
bool work_until(Done done, bool spins, std::chrono::microseconds patience, Work work) {
  if (done()) return true;
  if (!spins || waits_passively()) return false;
  while (work()) {
    if (done()) return true;
  }
  return spin_until(done, patience);
}

// Threads that work in one region at a time. Its caller is thread 0, its members the others.
class Crew {
 public:
  Crew() : patience_(spinning_patience) {}
  explicit Crew(IdleWork idle) : idle_(std::move(idle)), patience_(long_patience) {}
  ~Crew() {
    for (const auto& member : members_) send(*member, stop);
    for (const auto& member : members_) member->thread.join();
  }

  void run(int threads, Body body) {
    const int count = grow(threads);
    body_ = &body;
    count_ = count;
    spins_ = count <= usable_cpus();
    working_.store(count - 1, std::memory_order_relaxed);
    for (int i = 1; i < count; ++i) send(*members_[i - 1], go);
    body(0, count);
    wait_for_members();
  }

 private:
  enum Signal : int { idle, asleep, go, stop };
  struct alignas(64) Member {
    std::atomic<int> signal{idle};
    std::thread thread;
  };

  // Members for a region of so many threads; how many threads it will have.
  int grow(int threads) {
    // Signals of the process are its own threads' matter.
    sigset_t all, before;
    sigfillset(&all);
    while (static_cast<int>(members_.size()) < threads - 1) {
      auto member = std::make_unique<Member>();
      pthread_sigmask(SIG_SETMASK, &all, &before);
      try {
        member->thread =
            std::thread([this, &own = *member, number = static_cast<int>(members_.size()) + 1] {
              attend(own, number);
            });
      } catch (const std::system_error&) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return static_cast<int>(members_.size()) + 1;
      }
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      members_.push_back(std::move(member));
    }
    return threads;
  }

  static void send(Member& member, Signal signal) {
    if (member.signal.exchange(signal, std::memory_order_acq_rel) == asleep) {
      member.signal.notify_one();
    }
  }

  // One step of a waiting thread's work.
  bool work(int number) const { return idle_ && idle_(number); }

  // A member's life.
  void attend(Member& own, int number) {
    take_place(number);
    bool spins = true;
    for (;;) {
      const auto called = [&] { return own.signal.load(std::memory_order_acquire) >= go; };
      if (!work_until(called, spins, patience_, [&] { return work(number); })) {
        int expected = idle;
        own.signal.compare_exchange_strong(expected, asleep, std::memory_order_acq_rel);
        while (!called()) own.signal.wait(asleep, std::memory_order_acquire);
      }
      if (own.signal.load(std::memory_order_relaxed) == stop) return;
      own.signal.store(idle, std::memory_order_relaxed);
      spins = spins_;
      (*body_)(number, count_);
      if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
    }
  }

  void wait_for_members() {
    const auto done = [&] { return working_.load(std::memory_order_acquire) == 0; };
    if (work_until(done, spins_, patience_, [&] { return work(0); })) return;
    for (int left = working_.load(std::memory_order_acquire); left != 0;
         left = working_.load(std::memory_order_acquire)) {
      working_.wait(left, std::memory_order_acquire);
    }
  }

  const IdleWork idle_;
  const std::chrono::microseconds patience_;
  std::vector<std::unique_ptr<Member>> members_;
  // The region at work: written before its members are called.
  Body* body_ = nullptr;
  int count_ = 0;
  bool spins_ = true;  // not where threads wait for each other's CPUs
  alignas(64) std::atomic<int> working_{0};
};

// Crews that wait for a region. It is never freed: other threads may run regions while the process
// ends, and after a fork the child cannot know what state the parent's was in.
struct Crews {
  std::mutex mutex;
  std::vector<std::unique_ptr<Crew>> idle;

  std::unique_ptr<Crew> take() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (idle.empty()) return std::make_unique<Crew>();
    std::unique_ptr<Crew> crew = std::move(idle.back());
    idle.pop_back();
    return crew;
  }
  void give_back(std::unique_ptr<Crew> crew) {
    const std::lock_guard<std::mutex> lock(mutex);
    idle.push_back(std::move(crew));
  }
};

std::atomic<Crews*> crews{nullptr};

class ThreadPool final : public Pool {
 public:
  ThreadPool() {
    crews.store(new Crews, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, [] { crews.store(new Crews, std::memory_order_release); });
  }
  ~ThreadPool() override {
    Crews& all = *crews.load(std::memory_order_acquire);
    std::vector<std::unique_ptr<Crew>> ending;
    const std::lock_guard<std::mutex> lock(all.mutex);
    ending.swap(all.idle);
  }

  void run(int threads, Body body) override {
    Crews& all = *crews.load(std::memory_order_acquire);
    std::unique_ptr<Crew> crew = all.take();
    crew->run(threads, body);
    all.give_back(std::move(crew));
  }
};

class WorkingPool final : public Pool {
 public:
  explicit WorkingPool(IdleWork work) : crew_(std::move(work)) {}

  void run(int threads, Body body) override {
    // Threads that it started would share the CPUs of a caller that OpenMP has bound to its place.
    if (threads > usable_cpus()) return default_pool().run(threads, body);
    if (busy_.exchange(true, std::memory_order_acquire)) return thread_pool().run(threads, body);
    crew_.run(threads, body);
    busy_.store(false, std::memory_order_release);
  }

 private:
  Crew crew_;
  std::atomic<bool> busy_{false};
};

}  // namespace

Pool& thread_pool() {
  static ThreadPool pool;
  return pool;
}

std::unique_ptr<Pool> pool_with_idle_work(IdleWork work) {
  return std::make_unique<WorkingPool>(std::move(work));
}

void bind_thread_pool() {
  process_cpus();  // before this thread is bound to one of them
  bound.store(true, std::memory_order_release);
  take_place(0);
}

int usable_cpus() {
  const std::vector<int>& cpus = process_cpus();
  if (!cpus.empty()) return static_cast<int>(cpus.size());
  const unsigned all = std::thread::hardware_concurrency();
  return all > 0 ? static_cast<int>(all) : 1;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // waits some ten cycles; `yield` does nothing on most cores
#endif
}

}  // namespace rooflane
