// Where arrays that a kernel passes over once a run are found, and how long reading and writing
// them takes, from traits: for the schedules of everything that memory limits but GEMM.
#pragma once

#include <algorithm>
#include <bit>

#include "core/traits.hpp"

namespace rooflane::common {

// Parts of an array by the level that the next run finds them in; their sum is 1.
struct Residence {
  double l2 = 1, l3 = 0, memory = 0;
};

// The part that misses a cache if the data is `fill` times its capacity: none up to `from`, all
// from `to` on.
inline double missing_part(double fill, double from, double to) {
  return std::clamp((fill - from) / (to - from), 0.0, 1.0);
}

// For `bytes` that all threads together read or write. A private L2 keeps what fits. The last level
// misses long before it is full: addresses are hashed, and lines evicted from L2 and those of other
// tenants occupy a part.
inline Residence residence_of(double bytes, int threads, const Traits& traits) {
  const double past_l2 =
      missing_part(bytes / threads / static_cast<double>(traits.l2_bytes), 0.6, 1.2);
  const double past_l3 = missing_part(bytes / static_cast<double>(traits.l3_bytes), 0.1, 1.3);
  return {1 - past_l2, past_l2 * (1 - past_l3), past_l2 * past_l3};
}

// Numbers of threads worth a prediction: all, the next power of two below, and so on; 0 after one.
inline int fewer_threads(int threads) {
  return threads <= 1 ? 0 : static_cast<int>(std::bit_floor(static_cast<unsigned>(threads - 1)));
}

// A region with work takes so many times what an empty one was measured to take: threads are
// further apart, fetch arguments, and find each other's results.
inline constexpr double busy_region = 2;

// The rates of each of `threads`.
inline const Traits::Rates& rates_of(const Traits& traits, int threads) {
  return threads > 1 ? traits.many : traits.one;
}

// Seconds that one thread takes per byte, by the level (Rates::read or Rates::write): for bytes
// from L2, and for bytes from beyond it.
struct ByteSeconds {
  double within_l2, beyond_l2;
};
inline ByteSeconds byte_seconds(const Residence& part, const double (&rates)[levels]) {
  return {part.l2 / rates[in_l2], part.l3 / rates[in_l3] + part.memory / rates[in_memory]};
}

// Whether a core alone copies clearly faster in four places at once, by more than timings scatter:
// its prefetchers run no further ahead than the page in which they are read.
inline bool prefers_pages(const Traits& traits) {
  return traits.one.copy[in_four] > 1.05 * traits.one.copy[in_order];
}

// Seconds that one thread takes to copy from memory past the caches.
inline double copy_seconds(double read, double written, const Traits::Rates& rates) {
  const double copy = std::max(rates.copy[in_order], rates.copy[in_four]);
  return copy > 0 ? (read + written) / copy : read / rates.read[in_memory] + written / rates.stream;
}

// The same if `written` bytes, of all threads, are stored past the caches. Stores overlap with
// reads from L3; with reads from memory they share its bandwidth.
inline double streamed_seconds(double read, double written, int threads, const Traits& traits) {
  const Traits::Rates& rates = rates_of(traits, threads);
  const Residence part = residence_of(read, threads, traits);
  const double in_caches = std::max(
      written / rates.stream, read * (part.l2 / rates.read[in_l2] + part.l3 / rates.read[in_l3]));
  return ((1 - part.memory) * in_caches + part.memory * copy_seconds(read, written, rates)) /
         threads;
}

// By plain stores, which read the line first and leave it in the caches.
inline ByteSeconds plain_seconds(double read, double written, int threads, const Traits& traits) {
  const Traits::Rates& rates = rates_of(traits, threads);
  const Residence part = residence_of(read + written, threads, traits);
  const ByteSeconds load = byte_seconds(part, rates.read), store = byte_seconds(part, rates.write);
  double beyond_l2 = read * load.beyond_l2 + written * store.beyond_l2;
  if (const double copy = rates.copy[within_l3]; copy > 0) {  // not above what both reach together
    beyond_l2 = std::max(beyond_l2, (1 - part.l2) * (read + written) / copy);
  }
  return {(read * load.within_l2 + written * store.within_l2) / threads, beyond_l2 / threads};
}

// What stores past the caches cost whoever reads the result next, who would find it in the caches
// otherwise.
inline double reader_seconds(double read, double written, int threads, const Traits& traits) {
  const Traits::Rates& rates = rates_of(traits, threads);
  const ByteSeconds otherwise =
      byte_seconds(residence_of(read + written, threads, traits), rates.read);
  const double found = otherwise.within_l2 + otherwise.beyond_l2;
  return written / threads * std::max(0.0, 1 / rates.read[in_memory] - found);
}

// Whether a kernel that does little else than read and write should store past the caches.
inline bool streaming_is_faster(double read, double written, int threads, const Traits& traits) {
  const ByteSeconds plain = plain_seconds(read, written, threads, traits);
  return streamed_seconds(read, written, threads, traits) +
             reader_seconds(read, written, threads, traits) <
         plain.within_l2 + plain.beyond_l2;
}

}  // namespace rooflane::common
