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

// The values of the tunable `prefetch`.
enum class Prefetch { into_l1 = 0, pages = 1, into_l2 = 2 };

// What lies further on, up to the last element:
// - into_l1: what lies a fixed distance further on.
// - into_l2: the same into L2 only: 16 KiB more in an L1 of 32 crowd out the rows at work (a Zen 4,
//   rows of 2048 from memory: softmax 27 -> 37 GB/s, LayerNorm 17 -> 32).
// - pages: the next 16 KiB, alternating among its four pages line by line. The hardware prefetcher
//   of an Intel server's L2 follows each page on its own and stops at its end: a core that reads
//   one page at a time waits for it. Four pages are enough on a Sapphire Rapids. A line is
//   prefetched 4 to 28 KiB before its use, into L2, because 28 KiB crowd out an L1 of 32.
// One type for all three: a type each would compile every loop three times, and the few integer
// operations more of each vector are done while the loop waits for memory.
class PrefetchAhead {
 public:
  // The distance, in bytes, is not that of pages.
  PrefetchAhead(Prefetch way, std::int64_t distance, const void* last) : last_(last) {
    into_l1_ = way == Prefetch::into_l1;
    if (way == Prefetch::pages) {
      constexpr std::uintptr_t bytes = 4 * 4096;
      kept_ = ~(bytes - 1);
      skipped_ = bytes;
      // Bits 6 and 7, the line, become 12 and 13, the page; those in between move down.
      to_page_ = 0xc0;
      to_line_ = 0x3f00;
    } else {
      kept_ = ~std::uintptr_t{0};
      skipped_ = static_cast<std::uintptr_t>(distance);
    }
  }
  HWY_INLINE void operator()(const void* at) const {
    const auto here = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t there =
        (here & kept_) + skipped_ + ((here & to_page_) << 6) + ((here & to_line_) >> 2);
    const char* const line =
        std::min(reinterpret_cast<const char*>(there), static_cast<const char*>(last_));
    if (into_l1_) {
      hwy::Prefetch(line);
    } else {
      __builtin_prefetch(line, 0, 2);
    }
  }

 private:
  std::uintptr_t kept_, skipped_, to_page_ = 0, to_line_ = 0;
  const void* last_;
  bool into_l1_;
};

// The last of n elements of a row, as far as there is one.
template <class Row>
const void* last_of(Row x, std::size_t n) {
  return x + (n == 0 ? 0 : n - 1);
}

}  // namespace rooflane::common
