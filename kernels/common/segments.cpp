// Counting sort of edges. See segments.hpp.
#include "kernels/common/segments.hpp"

#include <array>

namespace rooflane::common {

namespace {

constexpr int most_threads = 256;  // of one sort; more would wait for memory anyway

Buffer integers(std::int64_t count) {
  return Buffer(static_cast<std::size_t>(count) * sizeof(std::int32_t));
}

// Part `part` of `parts` of [0,n).
struct Range {
  std::int64_t begin, end;
  Range(std::int64_t n, int part, int parts)
      : begin(n * part / parts), end(n * (part + 1) / parts) {}
};

}  // namespace

SegmentOrder::SegmentOrder(std::int64_t edges, std::int64_t segments, int threads)
    : edges_(edges),
      segments_(segments),
      threads_(std::min(threads, most_threads)),
      stride_((segments + 15) / 16 * 16),  // whole cache lines
      order_(integers(edges)),
      start_(integers(segments + 1)),
      counts_(integers(stride_ * threads_)) {}

void SegmentOrder::find(Pool* pool, const std::int32_t* segment) {
  std::int32_t* const order = at(order_);
  std::int32_t* const start = at(start_);
  std::array<std::int64_t, most_threads> totals;  // edges of each thread's segments
  parallel_region(pool, threads_, [&](const Team& team) {
    const Range mine(edges_, team.thread, team.threads);
    const auto counts_of = [&](int thread) { return at(counts_) + thread * stride_; };
    std::int32_t* const counts = counts_of(team.thread);
    std::fill_n(counts, segments_, 0);
    for (std::int64_t edge = mine.begin; edge < mine.end; ++edge) ++counts[segment[edge]];
    team.barrier();
    const Range slice(segments_, team.thread, team.threads);
    std::int64_t total = 0;
    for (int thread = 0; thread < team.threads && team.threads > 1; ++thread) {
      const std::int32_t* const theirs = counts_of(thread);
      for (std::int64_t s = slice.begin; s < slice.end; ++s) total += theirs[s];
    }
    totals[static_cast<std::size_t>(team.thread)] = total;
    team.barrier();
    // Counts become places: of a segment first the edges of thread 0, then those of thread 1...
    std::int64_t place = 0;
    for (int thread = 0; thread < team.thread; ++thread) {
      place += totals[static_cast<std::size_t>(thread)];
    }
    for (std::int64_t s = slice.begin; s < slice.end; ++s) {
      start[s] = static_cast<std::int32_t>(place);
      for (int thread = 0; thread < team.threads; ++thread) {
        std::int32_t& count = counts_of(thread)[s];
        const std::int32_t found = count;
        count = static_cast<std::int32_t>(place);
        place += found;
      }
    }
    if (team.thread == 0) start[segments_] = static_cast<std::int32_t>(edges_);
    team.barrier();
    for (std::int64_t edge = mine.begin; edge < mine.end; ++edge) {
      order[counts[segment[edge]]++] = static_cast<std::int32_t>(edge);
    }
  });
}

}  // namespace rooflane::common
