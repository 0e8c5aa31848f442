// Takes operands out of the caches, so that the next run finds them in memory (cold samples).
#pragma once

#include <cstddef>
#include <span>

namespace rooflane {

// Evicts every cache line that holds a byte of any region from all caches of all cores; modified
// lines are written back first and no data changes. Empty regions are allowed. On x86 by
// CLFLUSHOPT, else CLFLUSH; elsewhere by evict_by_streaming.
void evict(std::span<const std::span<const std::byte>> regions);

// Displaces what the caches hold by reading a buffer of twice the last-level cache (at
// least 64 MiB) on `threads` threads, so that private caches are displaced too. The buffer is
// allocated at the first call and kept. Likely, not certain: caches need not forget in order.
void evict_by_streaming(int threads);

}  // namespace rooflane
