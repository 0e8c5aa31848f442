// Pieces of work that several threads need done before they go on, each done once a run by whoever
// comes first. Nothing is reset from one run to the next.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/phases.hpp"

namespace rooflane::gemm {

class SharedPieces {
 public:
  SharedPieces() = default;
  explicit SharedPieces(std::int64_t count)
      : states_(std::make_unique<State[]>(static_cast<std::size_t>(count))),
        bytes_(static_cast<std::size_t>(count) * sizeof(State)) {}
  std::size_t bytes() const { return bytes_; }

  // Before a run: nothing is done. While no thread works.
  void begin() { done_ += 2; }

  // Does work(i) for those of [first,last) that nobody has begun, `start` of them later first.
  // Whether all are done by now. work must not wait for another piece.
  template <class Work>
  bool begin(std::int64_t first, std::int64_t last, std::int64_t start, const Work& work) {
    const std::int64_t count = last - first;
    bool all = true;
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t i = first + (n + start) % count;
      std::atomic<std::uint32_t>& place = states_[i].value;
      std::uint32_t state = place.load(std::memory_order_acquire);
      if (state == done_) continue;
      if (state == done_ - 1 ||
          !place.compare_exchange_strong(state, done_ - 1, std::memory_order_acq_rel)) {
        all = false;
        continue;
      }
      work(i);
      // Sequentially consistent: notify_all looks next whether anybody sleeps, and were that read
      // done before others see the store, one that falls asleep between would never be woken.
      place.store(done_, std::memory_order_seq_cst);
      place.notify_all();
    }
    return all;
  }
  bool done(std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) {
      if (states_[i].value.load(std::memory_order_acquire) != done_) return false;
    }
    return true;
  }
  void wait(std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) wait(states_[i].value);
  }
  // All of them at once: begun, and waited for.
  template <class Work>
  void finish(std::int64_t first, std::int64_t last, std::int64_t start, const Work& work) {
    if (begin(first, last, start, work)) return;
    const PhaseTimer timer(RunPhase::wait);
    wait(first, last);
  }

 private:
  // Spins for some microseconds, then sleeps: the system has taken the core away from whoever is at
  // it, and may give it this one.
  void wait(const std::atomic<std::uint32_t>& state) const {
    for (int spins = 0; spins < 2000; ++spins) {
      if (state.load(std::memory_order_acquire) == done_) return;
    }
    for (std::uint32_t now; (now = state.load(std::memory_order_acquire)) != done_;)
      state.wait(now);
  }

  // On a cache line of its own: all threads look at it while one writes the next.
  struct alignas(64) State {
    std::atomic<std::uint32_t> value{0};
  };
  std::unique_ptr<State[]> states_;
  std::size_t bytes_ = 0;
  // Of this run; one less: somebody is at it; else: of earlier runs. It may wrap around.
  std::uint32_t done_ = 0;
};

}  // namespace rooflane::gemm
