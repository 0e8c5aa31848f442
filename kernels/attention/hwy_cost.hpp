// attention/hwy: the schedule, how it cuts the work into tasks, and the time that it is predicted
// to take by what the machine was measured to be (core/traits.hpp). The plan is in hwy.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "core/parallel.hpp"
#include "core/traits.hpp"
#include "core/variant.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/hwy.hpp"

namespace rooflane::attention {

// The values of the tunables.
struct Schedule {
  std::int64_t q_block = 1, kv_block = 1;
  DecodePrefetch prefetch = DecodePrefetch::distance;
  int threads = 1;

  Schedule() = default;
  explicit Schedule(const Tuning& tuning);
  Tuning tuning() const;
};

// What an ISA target makes of a problem.
struct CodePath {
  std::int64_t lanes;  // float32 elements of a vector
  std::int64_t tile;   // keys, or columns of v, of prefill's micro-tiles
  bool decode;
};

// Whether decode can prefetch from four pages, line by line: rows are whole vectors of float32.
bool may_prefetch_pages(const Sizes& s, const CodePath& path);

// How keys are split among threads when there are fewer blocks of rows than these could share.
struct KeyChunks {
  std::int64_t count = 1, length = 1;
};
KeyChunks key_chunks(const Sizes& s, const Schedule& schedule);

// Seconds that a schedule takes.
double predict(const Schedule& schedule, const Sizes& s, const CodePath& path,
               const Traits& traits);

// Schedules for at most so many threads, the fastest first. `traits_of`: by number of threads.
std::vector<Schedule> schedules(const Sizes& s, const CodePath& path, int most_threads,
                                FunctionRef<const Traits&(int threads)> traits_of);

}  // namespace rooflane::attention
