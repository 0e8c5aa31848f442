// Pieces of work that several threads need done before they go on, each done once a round by
// whoever comes first. Nothing is reset between rounds or runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/phases.hpp"
#include "core/spin.hpp"

namespace rooflane::gemm {

class SharedPieces {
  // On a cache line of its own: all threads look at it while one writes the next. Equal to a
  // round's `done_`: done in that round; one less: a thread works on it; else: left from an earlier
  // round. It may wrap around.
  struct alignas(64) State {
    std::atomic<std::uint32_t> value{0};
  };

 public:
  static constexpr std::int64_t bytes_of_piece = sizeof(State);

  SharedPieces() = default;
  // For so many threads. A run has so many rounds, with a barrier between them.
  SharedPieces(std::int64_t count, int threads, std::int64_t rounds = 1)
      : states_(std::make_unique<State[]>(static_cast<std::size_t>(count))),
        bytes_(static_cast<std::size_t>(count * bytes_of_piece)),
        steps_of_run_(static_cast<std::uint32_t>(2 * rounds)),
        spins_(may_spin(threads)) {}
  std::size_t bytes() const { return bytes_; }

  // Before a run: nothing is done. While no thread works.
  void begin() { first_done_ += steps_of_run_; }

  class Round {
   public:
    // Does work(i) for those of [first,last) that nobody has begun, `start` of them later first.
    // Whether all are done by now. work must not wait for another piece.
    template <class Work>
    bool begin(std::int64_t first, std::int64_t last, std::int64_t start, const Work& work) const {
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
    // Spins, then sleeps: the system has taken the CPU away from whoever is at it, and may give it
    // this one.
    void wait(std::int64_t first, std::int64_t last) const {
      for (std::int64_t i = first; i < last; ++i) {
        const std::atomic<std::uint32_t>& place = states_[i].value;
        const auto is_done = [&] { return place.load(std::memory_order_acquire) == done_; };
        if (is_done() || (spins_ && spin_until(is_done, spinning_patience))) continue;
        for (std::uint32_t now; (now = place.load(std::memory_order_acquire)) != done_;)
          place.wait(now);
      }
    }
    // All of them at once: begun, and waited for.
    template <class Work>
    void finish(std::int64_t first, std::int64_t last, std::int64_t start, const Work& work) const {
      if (begin(first, last, start, work)) return;
      const PhaseTimer timer(RunPhase::wait);
      wait(first, last);
    }

   private:
    friend class SharedPieces;
    Round(State* states, std::uint32_t done, bool spins)
        : states_(states), done_(done), spins_(spins) {}
    State* states_;
    std::uint32_t done_;
    bool spins_;
  };
  Round round(std::int64_t number = 0) const {
    return {states_.get(), first_done_ + 2 * static_cast<std::uint32_t>(number), spins_};
  }

 private:
  std::unique_ptr<State[]> states_;
  std::size_t bytes_ = 0;
  std::uint32_t steps_of_run_ = 0, first_done_ = 0;
  bool spins_ = false;
};

}  // namespace rooflane::gemm
