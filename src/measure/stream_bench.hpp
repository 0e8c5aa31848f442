// Times the loops that read, write or copy memory; every thread has its own arrays. Internal to
// src/measure, for the bandwidth curve and the traits.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "core/buffer.hpp"
#include "measure/stream_loops.hpp"
#include "measure/together.hpp"

namespace rooflane {

enum Traffic : std::size_t { reading, writing, copying };
inline constexpr std::array traffics = {reading, writing, copying};

inline constexpr std::size_t page_bytes = 4096;

constexpr std::size_t round_down(std::size_t bytes, std::size_t unit) {
  return bytes / unit * unit;
}

// One method of a loop at one footprint. Where the array is walked in windows, each direction has
// its own least times, [0] forwards and [1] backwards: a pass at its best is each window at its
// best in the same direction. Windows at both ends would otherwise count as found in the caches,
// and a pass finds only those of the end where it begins.
struct StreamTrial {
  StreamMethod method;
  bool alternates;  // there and back
  std::array<std::vector<double>, 2> window_ns = {};
  double gb_s = 0;  // the best so far, of all threads together
};

// Whether an array of a thread with this share of the footprint is walked in windows.
bool in_windows(Traffic traffic, std::size_t share);

// The arrays of all threads and the timing of one loop on them.
class StreamBench {
 public:
  // Touches all memory, each thread its own. Throws Error(unavailable) when fewer threads run.
  StreamBench(int threads, std::size_t largest_footprint);

  // Starts on a footprint, a whole number of pages a thread: one untimed pass, so that the caches
  // hold what earlier passes of the same loop leave there.
  void begin(Traffic traffic, std::size_t footprint);

  // Walks all arrays with the trial's method, short ones several times, and updates the trial. An
  // alternating trial begins at the end where the last pass stopped, whatever its method.
  void repeat(Traffic traffic, StreamTrial& trial);

 private:
  // `passes` over `bytes` of each of the thread's arrays from `position_` on; bytes read and
  // written.
  std::size_t walk(Traffic traffic, int thread, std::size_t bytes, StreamMethod method,
                   std::size_t passes, PassOrder order);
  std::byte* slab(int thread);

  Together together_;
  std::size_t slab_;
  Buffer memory_;
  // The current footprint, per thread: all arrays, one array, one window and where it begins.
  std::size_t share_ = 0, array_ = 0, window_ = 0, position_ = 0;
  bool at_end_ = true;  // where the last pass stopped
};

}  // namespace rooflane
