// What memory is asked for while a row kernel works on other elements: the functions are called
// with the address of each vector of x once, on one of the visits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"

namespace rooflane::common {

// Nothing: the elements are in cache.
struct NoPrefetch {
  HWY_INLINE void operator()(const void* /*at*/) const {}
};

// What lies a fixed distance further on, in bytes, up to the last element.
struct PrefetchIntoL1 {
  std::int64_t distance;
  const void* last;
  HWY_INLINE void operator()(const void* at) const {
    hwy::Prefetch(
        std::min(static_cast<const char*>(at) + distance, static_cast<const char*>(last)));
  }
};

// The same into L2 only: 16 KiB more in an L1 of 32 crowd out the rows at work (a Zen 4, rows of
// 2048 from memory: softmax 27 -> 37 GB/s, LayerNorm 17 -> 32).
struct PrefetchIntoL2 {
  std::int64_t distance;
  const void* last;
  HWY_INLINE void operator()(const void* at) const {
    __builtin_prefetch(
        std::min(static_cast<const char*>(at) + distance, static_cast<const char*>(last)), 0, 2);
  }
};

// The next 16 KiB, alternating among its four pages line by line, up to the last element. The
// hardware prefetcher of an Intel server's L2 follows each page on its own and stops at its end: a
// core that reads one page at a time waits for it. Four pages are enough on a Sapphire Rapids. A
// line is prefetched 4 to 28 KiB before its use, into L2, because 28 KiB crowd out an L1 of 32.
struct PrefetchPages {
  static constexpr std::uintptr_t bytes = 4 * 4096;
  const void* last;
  HWY_INLINE void operator()(const void* at) const {
    // Bits 6 and 7, the line, become 12 and 13, the page; those in between move down.
    const auto here = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t there =
        (here & ~(bytes - 1)) + bytes + ((here & 0xc0) << 6) + ((here & 0x3f00) >> 2);
    __builtin_prefetch(
        std::min(reinterpret_cast<const char*>(there), static_cast<const char*>(last)), 0, 2);
  }
};

// The last of n elements of a row, as far as there is one.
template <class Row>
const void* last_of(Row x, std::size_t n) {
  return x + (n == 0 ? 0 : n - 1);
}

}  // namespace rooflane::common
