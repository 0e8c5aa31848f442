// Loops that read, write or copy memory in one or several streams, at the best ISA target of this
// CPU. Untimed; bandwidth.hpp times them. Internal to src/measure.
#pragma once

#include <cstddef>

namespace rooflane {

// How an array is walked: in how many equal segments side by side, and whether stores bypass the
// caches.
struct StreamMethod {
  int streams = 1;  // 1, 4 or 8
  bool non_temporal = false;
};

// Where the passes over an array begin. There and back: each pass begins where the one before it
// ended, and so finds there what the caches kept. Passes that always begin at the same end find
// nothing in a cache that is smaller than the array and evicts what was used longest ago, although
// a kernel may well find a part of its data there.
enum class PassOrder { forward, backward, there_and_back, back_and_there };

// Each walks the first `bytes` of its arrays `passes` times and returns the bytes of one array that
// one pass really touches: less than `bytes` by at most two blocks of 512 bytes a stream, 0 when
// not even one block fits. Arrays are 64-byte aligned and do not overlap.
struct StreamLoops {
  std::size_t (*read)(const std::byte* from, std::size_t bytes, StreamMethod method,
                      std::size_t passes, PassOrder order);
  std::size_t (*write)(std::byte* to, std::size_t bytes, StreamMethod method, std::size_t passes,
                       PassOrder order);
  std::size_t (*copy)(const std::byte* from, std::byte* to, std::size_t bytes, StreamMethod method,
                      std::size_t passes, PassOrder order);
};

const StreamLoops& stream_loops();

}  // namespace rooflane
