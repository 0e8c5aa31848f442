// Probes: fixed work, timed once a call. What they do never depends on how fast it went, so that
// two calls can be compared, in this process or another.
#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "measure/ceilings.hpp"
#include "measure/fma_peak.hpp"
#include "measure/stream_loops.hpp"
#include "measure/together.hpp"

namespace rooflane {
namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t page_bytes = 4096;

// One per thread count, kept: a probe allocates at its first call only.
Together& together_of(int threads) {
  static std::map<int, Together> kept;
  return kept.try_emplace(threads, threads).first->second;
}

// Memory for copies, and how much of it each thread has touched.
class CopyArea {
 public:
  // 256 MiB lie beyond any last-level cache that one process gets to itself, except where so
  // little memory is free that an eighth of it must do.
  CopyArea()
      : memory_(std::max<std::size_t>(std::min(256 * MiB, available_memory_bytes() / 8), 4 * MiB)) {
  }

  // The area of each of `threads` threads, in whole pages.
  std::size_t slab_bytes(int threads) const {
    return memory_.bytes() / static_cast<std::size_t>(threads) / page_bytes * page_bytes;
  }
  std::byte* slab(int thread, int threads) const {
    return static_cast<std::byte*>(memory_.data()) +
           slab_bytes(threads) * static_cast<std::size_t>(thread);
  }
  // Touches the first `bytes` of every thread's slab, each by its thread; once.
  void touch(Together& together, std::size_t bytes) {
    std::size_t& done = touched_[together.threads()];
    if (bytes <= done) return;
    together.run_ns(
        [&](int thread) { std::memset(slab(thread, together.threads()) + done, 1, bytes - done); });
    done = bytes;
  }

 private:
  Buffer memory_;
  std::map<int, std::size_t> touched_;
};

// Bytes that one thread moves, so that a probe takes about 1 ms at the usual speed of the level
// that holds `share` bytes: 400, 200 and 100 GB/s a thread in L1, L2, L3, and 50 GB/s of memory for
// all threads together (but 8 MiB a thread, with many). The reported sizes only choose the amount
// of work.
std::size_t bytes_to_move(std::size_t share, int threads) {
  const Machine& m = machine();
  if (share <= m.l1d_bytes) return 384 * MiB;
  if (share <= m.l2_bytes) return 192 * MiB;
  if (share <= m.l3_bytes / static_cast<std::size_t>(threads)) return 96 * MiB;
  return std::max(48 * MiB / static_cast<std::size_t>(threads), 8 * MiB);
}

}  // namespace

double probe_fma_ns(int threads) {
  static const FmaLoop loop = fma_loop(resolve_isa(""));
  // 8 M multiply-adds of vectors: 1 ms at 4 GHz and 2 a cycle.
  const std::int64_t steps = 8'000'000 / loop.vectors;
  return together_of(threads).run_ns([&](int) { keep(loop.run(steps, 0.5f, 1.0f)); });
}

double probe_copy_ns(double footprint_bytes, int threads) {
  static CopyArea area;
  static std::size_t position = 0;  // where the next window begins, in each array
  Together& together = together_of(threads);
  const StreamLoops& loops = stream_loops();
  constexpr StreamMethod method{4, false};  // what most machines copy fastest at every level

  // Two arrays a thread, in whole pages.
  const auto count = static_cast<std::size_t>(threads);
  const std::size_t slab = area.slab_bytes(threads);
  const std::size_t wanted =
      static_cast<std::size_t>(std::min(footprint_bytes, 1e15)) / count / 2 / page_bytes;
  const std::size_t array = std::clamp(wanted, std::size_t{1}, slab / 2 / page_bytes) * page_bytes;
  area.touch(together, 2 * array);

  const std::size_t moved = bytes_to_move(2 * array, threads);
  // Where a pass is more than the work, a window walks through the arrays from call to call: it
  // then finds lines that were last used an array ago, as a pass would.
  const std::size_t window = std::min(array, moved / 2 / page_bytes * page_bytes);
  const std::size_t passes = moved / (2 * window);
  position = position + 2 * window <= array ? position + window : 0;
  if (window == array) position = 0;
  const auto copy = [&](int thread, std::size_t times) {
    std::byte* from = area.slab(thread, threads) + position;
    loops.copy(from, from + array, window, method, times, PassOrder::forward);
  };
  // Small arrays are brought back into their cache before the clock starts.
  if (window == array) together.run_ns([&](int thread) { copy(thread, 1); });
  return together.run_ns([&](int thread) { copy(thread, passes); });
}

}  // namespace rooflane
