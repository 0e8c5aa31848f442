// Weights on their way from memory while threads wait: of the matrices that a phase reads one after
// another, the next ones' first kilobytes, for each thread the part that its first tasks read.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

namespace rooflane::generate {

class WeightPrefetch {
 public:
  // `threads` share each matrix in as many runs of rows. At most `ahead` bytes are prefetched by a
  // thread before they are read: they must stay in its L2.
  WeightPrefetch(int threads, std::size_t ahead) : threads_(threads), ahead_(ahead) {}

  // The next matrix in the order of reading; returns its number. Not after the first read_until().
  std::size_t add(std::span<const std::byte> matrix);
  std::size_t size() const { return parts_.size(); }

  // All before matrix `number` were read, or are being read. A smaller number than before: the
  // phase begins again.
  void read_until(std::size_t number) { next_.store(number, std::memory_order_release); }
  // Prefetches some lines for a thread; false when there is nothing left to do, or not yet. Each
  // thread calls it for itself.
  bool step(int thread);

 private:
  // A thread's part of a matrix: [begin + thread · bytes, + bytes), and how much the parts before
  // it have altogether.
  struct Part {
    const std::byte* begin;
    std::size_t bytes, before;
  };
  struct alignas(64) Cursor {
    std::size_t next = 0, part = 0;
    std::size_t at = 0;  // of all parts one after another
  };

  const int threads_;
  const std::size_t ahead_;
  std::vector<Part> parts_;
  std::vector<Cursor> cursors_ = std::vector<Cursor>(static_cast<std::size_t>(threads_));
  static constexpr std::size_t none = ~std::size_t{0};  // nobody reads yet
  alignas(64) std::atomic<std::size_t> next_{none};
};

}  // namespace rooflane::generate
