// The schedule of a row kernel (softmax, LayerNorm, RMSNorm): which there are, and which is fastest
// by what the machine was measured to be (core/traits.hpp). How rows are shared: rows.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/parallel.hpp"
#include "core/traits.hpp"
#include "core/variant.hpp"
#include "kernels/common/rows.hpp"

namespace rooflane::common {

// The values of row_tunables.
struct RowSchedule {
  bool stream = false, split = false;
  Prefetch prefetch = Prefetch::into_l1;
  int threads = 1;

  RowSchedule() = default;
  explicit RowSchedule(const Tuning& tuning);
  Tuning tuning() const;
};

// What a core does for a row in cache, in vector multiply-adds at peak rate: half a cycle where two
// are started in one. Counted from the instructions, loads and stores among them.
struct RowWork {
  double vector_ops;  // for a vector of x
  double row_ops;  // for what comes once a row: sums across lanes, divisions, the next row's start
  double short_ops;    // for an element where several rows share a vector of 16; 0: they never do
  Prefetch long_rows;  // for rows so long that an L1 below 48 KiB does not keep three
};

struct RowShape {
  std::int64_t rows = 0, cols = 0;
  double read = 0, written = 0;  // bytes

  RowShape() = default;
  explicit RowShape(const Problem& problem);
};

// Seconds that a schedule takes.
double predict(const RowSchedule& schedule, const RowShape& shape, const RowWork& work,
               const Traits& traits);

// Schedules for at most so many threads, the fastest first. `traits_of`: by number of threads.
std::vector<RowSchedule> row_schedules(const RowShape& shape, const RowWork& work, int most_threads,
                                       FunctionRef<const Traits&(int threads)> traits_of);

// The same for a variant's record.
std::vector<Tuning> row_tunings(const Problem& problem, const Environment& env,
                                const RowWork& work);
double predicted_row_seconds(const Problem& problem, const Tuning& tuning, const Environment& env,
                             const RowWork& work);
std::optional<std::string> threads_defect(const Problem& problem, const Tuning& tuning,
                                          const Environment& env);

// Whether a kernel that reads and writes so many bytes, and does little else, should store past the
// caches.
bool worth_streaming(double read, double written, int threads, const Environment& env);

// Whether a core takes a vector of 512 bits as two halves: its peak at AVX-512 is hardly above that
// at AVX2. False where peaks were not measured.
bool halves_vectors(std::string_view isa);

}  // namespace rooflane::common
