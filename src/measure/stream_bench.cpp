// Arrays, windows and the timing of passes. See stream_bench.hpp.
#include "measure/stream_bench.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

namespace rooflane {
namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t huge_page_bytes = 2 * MiB;

// Each thread moves at least this much per repeat: 60 µs in the fastest L1 (500 GB/s), where
// meeting at the barrier costs well below 1 µs.
constexpr std::size_t bytes_per_repeat = 32 * MiB;
// Long arrays are walked in windows, 0.4 to 2 ms of memory's time each, timed one by one: a whole
// pass would seldom go undisturbed on a shared machine.
constexpr std::size_t window_bytes = 16 * MiB;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return round_down(bytes + unit - 1, unit);
}

// The bytes of one of a thread's arrays.
std::size_t array_bytes(Traffic traffic, std::size_t share) {
  return traffic == copying ? share / 2 : share;
}

}  // namespace

bool in_windows(Traffic traffic, std::size_t share) {
  return array_bytes(traffic, share) >= 2 * window_bytes;
}

StreamBench::StreamBench(int threads, std::size_t largest_footprint)
    : together_(threads),
      slab_(round_up(largest_footprint / static_cast<std::size_t>(threads) + 2 * page_bytes,
                     huge_page_bytes)),
      memory_(slab_ * static_cast<std::size_t>(threads)) {
  together_.run_ns([&](int thread) { std::memset(slab(thread), 1, slab_); });
}

void StreamBench::begin(Traffic traffic, std::size_t footprint) {
  share_ = footprint / static_cast<std::size_t>(together_.threads());
  array_ = array_bytes(traffic, share_);
  // Equal windows that together are the whole array, but for less than a page each.
  const std::size_t windows = array_ / window_bytes;
  window_ = windows > 1 ? round_down(array_ / windows, page_bytes) : array_;
  position_ = 0;
  at_end_ = true;
  together_.run_ns([&](int thread) { walk(traffic, thread, array_, {}, 1, PassOrder::forward); });
}

void StreamBench::repeat(Traffic traffic, StreamTrial& trial) {
  const std::size_t windows = array_ / window_;
  const bool backward = trial.alternates && at_end_;
  std::size_t passes = 1;
  PassOrder order = backward ? PassOrder::backward : PassOrder::forward;
  if (windows == 1) {
    passes = std::max<std::size_t>(trial.alternates ? 2 : 1, bytes_per_repeat / share_);
    if (trial.alternates) order = backward ? PassOrder::back_and_there : PassOrder::there_and_back;
  }
  for (std::vector<double>& ns : trial.window_ns) {
    ns.resize(windows, std::numeric_limits<double>::infinity());
  }
  std::size_t moved = 0;  // per thread and window; the same for all
  for (std::size_t i = 0; i < windows; ++i) {
    const std::size_t w = backward ? windows - 1 - i : i;
    position_ = w * window_;
    const double ns = together_.run_ns([&](int thread) {
      const std::size_t mine = walk(traffic, thread, window_, trial.method, passes, order);
      if (thread == 0) moved = mine;
    });
    double& least = trial.window_ns[backward][w];
    least = std::min(least, ns);
  }
  at_end_ = trial.alternates && passes % 2 == 0 ? at_end_ : !backward;
  double ns = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& one_way : trial.window_ns) {
    ns = std::min(ns, std::accumulate(one_way.begin(), one_way.end(), 0.0));
  }
  trial.gb_s = static_cast<double>(moved * windows) * together_.threads() / ns;
}

std::size_t StreamBench::walk(Traffic traffic, int thread, std::size_t bytes, StreamMethod method,
                              std::size_t passes, PassOrder order) {
  const StreamLoops& loops = stream_loops();
  std::byte* x = slab(thread) + position_;
  if (traffic == reading) return passes * loops.read(x, bytes, method, passes, order);
  if (traffic == writing) return passes * loops.write(x, bytes, method, passes, order);
  // Both arrays start at the same place of a page: a load and an older store then differ in their
  // low 12 bits, which some CPUs compare first.
  std::byte* y = x + round_up(array_, page_bytes);
  return 2 * passes * loops.copy(x, y, bytes, method, passes, order);
}

std::byte* StreamBench::slab(int thread) {
  return static_cast<std::byte*>(memory_.data()) + slab_ * static_cast<std::size_t>(thread);
}

}  // namespace rooflane
