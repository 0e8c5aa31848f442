// What one run of the hwy variant needs, resolved by its plan: operands, path, blocks, memory.
// Shared by all ISA targets; no vector code. Next: hwy_tiles-inl.h, hwy_paths-inl.h, hwy.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/parallel.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

// How a problem is computed; hwy_model.hpp's choose() is the table that picks one.
enum class Path : std::int64_t {
  scale = 0,   // no product: c = beta·c0
  dot = 1,     // one side has few rows, the other is contiguous along k: dot products, read once
  stream = 2,  // one side has few rows, the other is contiguous across k: row updates, read once
  direct =
      3,  // register tiles over what lies well as it is, or is packed by the thread that uses it
  packed = 4,  // register tiles over blocks of b that are packed once for all threads
};

// The register tile of an ISA target.
struct TileShape {
  std::int64_t lanes;   // floats in a vector
  std::int64_t mr;      // rows of a tile of nv vectors
  std::int64_t nv;      // vectors of a tile along n
  std::int64_t run_nv;  // the most: where c is most of the traffic, or rows are few
  std::int64_t nr() const { return lanes * nv; }
};

// How n columns are cut into strips, each as wide as a register tile: nv vectors, and what is left
// goes to strips of nv + 1 at the end, where `wide` tiles may take them (a is read in place), or
// rather 2 + 2 vectors than 3 + 1, 7 + 2 than 8 + 1: a single vector of accumulators leaves the FMA
// units waiting for loads. The last vector of the last strip may be partial.
class Strips {
 public:
  Strips() = default;
  Strips(std::int64_t n, const TileShape& tile, bool wide = false)
      : n_(n), nr_(tile.nr()), lanes_(tile.lanes) {
    count_ = (n + nr_ - 1) / nr_;
    const std::int64_t vectors = (n + lanes_ - 1) / lanes_, left = vectors % tile.nv;
    first_wide_ = count_;
    if (wide && left > 0 && vectors >= left * (tile.nv + 1)) {
      count_ = vectors / tile.nv;
      first_wide_ = count_ - left;
    }
    const bool split = first_wide_ == count_ && tile.nv >= 3 && count_ > 1 && left == 1;
    split_ = split ? count_ - 1 : count_;
  }
  std::int64_t count() const { return count_; }
  // Columns of all strips but the last ones.
  std::int64_t nr() const { return nr_; }
  std::int64_t begin(std::int64_t strip) const {
    if (strip >= count_) return n_;
    return strip * nr_ + (strip > first_wide_ ? (strip - first_wide_) * lanes_ : 0) -
           (strip == split_ ? lanes_ : 0);
  }
  std::int64_t width(std::int64_t strip) const { return begin(strip + 1) - begin(strip); }
  // The first strip of nv + 1 vectors, or count().
  std::int64_t first_wide() const { return first_wide_; }

 private:
  std::int64_t n_ = 0, nr_ = 1, lanes_ = 1, count_ = 0;
  std::int64_t first_wide_ = 0;
  std::int64_t split_ = 0;  // a last strip of two, the one before it as well
};

// Small products take as long as a few divisions, so that none is made without need: `total` in
// pieces of `size`, and one digit of `number` in base `parts`, taken away from it.
inline std::int64_t pieces(std::int64_t total, std::int64_t size) {
  return total <= size ? 1 : (total + size - 1) / size;
}
inline std::int64_t take_digit(std::int64_t& number, std::int64_t parts) {
  if (parts == 1) return 0;
  const std::int64_t digit = number % parts;
  number /= parts;
  return digit;
}

// `total` items in nearly equal parts.
class Shares {
 public:
  Shares(std::int64_t total, std::int64_t parts)
      : least_(parts == 1 ? total : total / parts), more_(parts == 1 ? 0 : total % parts) {}
  std::int64_t begin(std::int64_t part) const { return least_ * part + std::min(part, more_); }
  std::int64_t size(std::int64_t part) const { return least_ + (part < more_ ? 1 : 0); }

 private:
  std::int64_t least_, more_;
};
inline std::int64_t share(std::int64_t total, std::int64_t parts, std::int64_t index) {
  return Shares(total, parts).begin(index);
}

// direct: most columns that vectors down them serve (see hwy_tail-inl.h).
inline constexpr int most_down = 8;

// dot: most of the few side that registers serve together.
inline constexpr std::int64_t dot_limit = 8;

// dot from afar: rows of the long side that are worked on in turn with each chunk of k. Their sums,
// 48 × 8 vectors, are 24 KB (twice as much in two groups) and stay in L2, and the chunk, 16 to 32
// KB a group, is read from there once per 96 KB. A multiple of the 3 or 4 rows that FarDot takes,
// which, where they are apart, are a third or a quarter of the block apart.
inline constexpr std::int64_t far_block = 48;
// The same for dot products nearby, of 12 rows that are 10 apart, for a single row of the few.
inline constexpr std::int64_t near_block = 120;

// stream, by whole rows: most rows of sums, most columns of a task, and how many floats rows of
// sums are apart. That is a constant, so that one register addresses them all, and three lines more
// than pages: begun 16 lines into a page after the rows that are read, 12 of them keep apart in L1
// and clear of the lines that are read next, which would wait for stores to the same place in a
// page.
inline constexpr int most_updated = 12;
inline constexpr std::int64_t most_update_columns = 4096;  // longer runs gain nothing more
inline constexpr std::int64_t update_ld = most_update_columns + 3 * 16;
inline constexpr std::int64_t update_lead = 16 * 16;
inline constexpr std::int64_t page_floats = 1024;

struct Job {
  explicit Job(const Gemm& gemm) : g(gemm) {}

  Gemm g;  // of a single column column_as_row(), with a and b exchanged
  Path path = Path::scale;
  // dot, stream: b is the side with few rows (columns of op(b)), not a. packed: the product formed
  // is op(b)ᵀ·op(a)ᵀ, c's transpose, and a and b below have changed places.
  bool flip = false;
  std::int64_t rows = 0, cols = 0;  // direct, packed: of the product formed
  Strips strips;                    // direct: of its columns
  std::int64_t tail = 0;            // direct: columns after `cols`, too few to fill a vector along
                                    // them; with trans_a they may be all
  bool pack_a = false;              // direct, packed: copy blocks of a; else it is read in place
  bool pack_b = false;              // direct: copy strips of b
  // direct, packed: a row of tiles at a time, not a column (see SweepRows). stream: whole rows of
  // the wide side, not strips. dot: rows of the long side that are read at once are not neighbours
  // (see RowTiles).
  bool sweep = false;
  bool tall = false;      // tiles may have more than kMr rows, a's lines keep apart in L1
  bool stream_c = false;  // c is written past the caches
  // direct: b in place comes from afar, and its next strip is fetched row by row over the first
  // eight tiles of this one, not column by column over three.
  bool fetch_rows = false;
  bool near = false;         // direct, packed: a thread does the same tasks in every call
  bool far = false;          // dot: from afar, kc of k at a time
  std::int64_t streams = 0;  // dot: most rows of the long side to be read at once; 0: any
  // direct, packed: a block of a is mc × kc. packed: b is packed kb × nc at a time (kb a multiple
  // of kc, or k), for batch_group batches together. stream: nc columns of the wide side at a time,
  // strips of them kc deep. dot: kc deep, nc rows of the long side a task.
  std::int64_t mc = 0, kc = 0, nc = 0, kb = 0, batch_group = 1;
  // stream: sums are added up in c: of strips, which come back to each only once in kc, and of a
  // single row, whose lines are not in each other's way.
  bool in_place() const { return !flip && (!sweep || g.m == 1); }
  // stream: how many floats rows of sums are apart in scratch.
  std::int64_t stream_ld() const { return sweep ? update_ld : (nc + 15) / 16 * 16; }
  // Tasks of one phase, per batch: equal shares of rows times equal shares of strips, and of k.
  std::int64_t row_parts = 1, col_parts = 1, k_parts = 1;
  std::int64_t batch_parts = 1;  // direct: tasks' shares of the batches

  int threads = 1;
  Pool* pool = nullptr;

  Side a, b;
  Matrix<const float> c0;
  Matrix<float> c;

  const float* prepacked = nullptr;  // b of prepack=1: strips, or rows [n,k] where flip
  // packed: b of one phase; direct with k_parts > 1: their sums; far: the few side.
  float* shared = nullptr;
  float* scratch = nullptr;  // `scratch_floats` for each thread
  std::int64_t scratch_floats = 0;
  std::int64_t scratch_a = 0;  // of those, what packed blocks of a take; what follows is b's or c's
};

// task(number, thread) for each of `tasks`: those of a batch in runs of neighbours, where they are
// so many that handing out each would count (two threads of a Zen 4, 1000 of 64 × 4 × 64: 1.5 times
// as fast, of 15 × 4 × 64, a transposed, 2.2).
template <class Task>
void run_tasks(const Job& job, std::int64_t tasks, const Task& task) {
  const std::int64_t most = job.g.batch > 1 ? std::int64_t{8} * job.threads : tasks;
  const std::int64_t count = std::min(tasks, most);
  const Shares runs(tasks, count);
  const auto hand_out = count < tasks ? parallel_for_near : parallel_for;
  hand_out(job.pool, job.threads, count, [&](std::int64_t run, int thread) {
    for (std::int64_t t = runs.begin(run); t < runs.begin(run + 1); ++t) task(t, thread);
  });
}

// The functions that each ISA target exports.
using RunFunction = void (*)(const Job&);
using PackFunction = void (*)(const Job&, const Side& b, float* to);
using ShapeFunction = TileShape (*)();

}  // namespace rooflane::gemm
