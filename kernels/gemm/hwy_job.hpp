// What one run of the hwy GEMM needs, resolved by its plan: a schedule, operands and memory; and
// how columns are cut into B micro-panels, work into tasks. Shared by all ISA targets, no vector
// code. Next: hwy_micro-inl.h, hwy_loops-inl.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_epilogue.hpp"
#include "kernels/gemm/hwy_schedule.hpp"
#include "kernels/gemm/shared_pieces.hpp"

namespace rooflane::gemm {

inline std::int64_t div_up(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }
inline std::int64_t round_up(std::int64_t x, std::int64_t y) { return div_up(x, y) * y; }

// How n columns are cut into B micro-panels of nr columns each but the last ones: rather 2 + 2
// vectors than 3 + 1, 7 + 2 than 8 + 1, as a single vector of accumulators leaves the FMA units
// waiting for loads. The last vector of the last one may be partial.
class MicroPanels {
 public:
  MicroPanels() = default;
  MicroPanels(std::int64_t n, std::int64_t nr, std::int64_t lanes)
      : n_(n), nr_(nr), lanes_(lanes), count_(div_up(n, nr)), even_(count_) {
    if (nr >= 3 * lanes && count_ > 1 && div_up(n, lanes) % (nr / lanes) == 1) even_ = count_ - 1;
  }
  std::int64_t count() const { return count_; }
  // Columns of all but the last ones.
  std::int64_t nr() const { return nr_; }
  std::int64_t begin(std::int64_t index) const {
    return index >= count_ ? n_ : index * nr_ - (index == even_ ? lanes_ : 0);
  }
  std::int64_t width(std::int64_t index) const { return begin(index + 1) - begin(index); }

 private:
  std::int64_t n_ = 0, nr_ = 1, lanes_ = 1, count_ = 0;
  std::int64_t even_ = 0;  // a last one that has two vectors: one is from the micro-panel before it
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

// dot: most rows of the skinny operand that registers serve together.
inline constexpr std::int64_t dot_limit = 8;

// dot, packed: rows of the long operand that are multiplied by a chunk of k before the next chunk.
// Their sums, 48 × 8 vectors, are 24 KB (twice as much in two groups) and stay in L2, and the
// chunk, 16 to 32 KB a group, is read from there once per 96 KB. A multiple of the 3 or 4 rows that
// are multiplied at once.
inline constexpr std::int64_t packed_dot_block = 48;
// The same where the skinny operand is not packed: at least 12 rows that are 10 apart, for a single
// row of the skinny operand, where there are as many.
inline constexpr std::int64_t spread_block = 120;
// How far apart they are in a share of so many rows, if so many are read at once. Blocks have the
// same size, so that few rows are left that are neighbours.
constexpr std::int64_t rows_apart(std::int64_t share, std::int64_t at_once) {
  return share / std::max<std::int64_t>(share / spread_block, 1) / at_once;
}

// outer, by whole rows: most rows of sums, most columns of a task, and how many floats rows of sums
// are apart. That is a constant, so that one register addresses them all, and three lines more than
// whole pages: begun 16 lines into a page after the rows that are read, 12 of them fall into sets
// of L1 of their own and clear of the lines that are read next, since a load waits for an older
// store to the same place in a page.
inline constexpr int most_outer_rows = 12;
inline constexpr std::int64_t most_outer_columns = 4096;  // longer runs gain nothing more
inline constexpr std::int64_t outer_row = most_outer_columns + 3 * 16;
inline constexpr std::int64_t outer_lead = 16 * 16;
inline constexpr std::int64_t page_floats = 1024;

// outer, by whole rows: what a thread needs of scratch, its sums shifted by up to a page.
inline std::int64_t outer_floats(std::int64_t skinny) {
  return skinny * outer_row + page_floats + outer_lead;
}
// outer: sums are added up in c itself: of micro-tiles, which load and store each only once in kc,
// and of a single row, whose lines do not evict each other.
inline bool outer_in_place(const Schedule& s, const Gemm& g) {
  return !s.transposed && (!s.order || g.m == 1);
}
// outer: how many floats rows of sums are apart in scratch.
inline std::int64_t outer_ld(const Schedule& s) { return s.order ? outer_row : round_up(s.nc, 16); }

// A micro-panels that are packed together where a is contiguous across them: as many lines being
// written as L1 keeps apart.
inline constexpr std::int64_t micro_panels_at_once = 16;

// packed: operands are packed piece by piece, each once a phase, by the thread that first needs it.
struct PackedPieces {
  PackedPieces() = default;
  // Of the product formed.
  PackedPieces(const Schedule& s, const Gemm& g, const MicroTile& tile);

  std::int64_t phases = 1, batches = 1;  // batches: of a phase
  std::int64_t blocks = 0;               // of k in a phase
  // b: so many B micro-panels a piece, pieces a block of k. None: b is packed beforehand.
  std::int64_t b_panels = 1, b_pieces = 0;
  // a: so many A micro-panels a piece, pieces a block of a, blocks of a a share of rows. None:
  // a is read in place.
  std::int64_t a_panels = 1, a_pieces = 0, a_blocks = 0, row_parts = 1;

  std::int64_t of_b() const;
  std::int64_t of_a() const;
  std::int64_t of_phase() const { return of_b() + of_a(); }
};

// What one run needs: its schedule, operands and memory.
struct Job : Schedule {
  explicit Job(const Gemm& gemm) : g(gemm), epilogue_job(gemm) {}

  Gemm g;  // as as_row() leaves it
  // Of the product formed. Where that is c's transpose, a and b below have changed places.
  std::int64_t rows = 0, cols = 0;
  MicroPanels b_panels;          // unpacked: of its columns
  std::int64_t batch_group = 1;  // packed: batches whose b is packed at a time
  Pool* pool = nullptr;

  MatrixView a, b;
  Matrix<const float> c0;
  Matrix<float> c;

  const float* prepacked = nullptr;  // b of prepack=1: micro-panels, or rows [n,k] where transposed
  // packed: b of one phase; unpacked with k_parts > 1: their sums; dot: the packed skinny operand.
  float* shared = nullptr;
  float* shared_a = nullptr;        // packed, pack_a: a of one phase
  PackedPieces pieces;              // packed: how both are packed,
  SharedPieces* packing = nullptr;  // and how far that is
  float* scratch = nullptr;         // `scratch_floats` for each thread
  std::int64_t scratch_floats = 0;

  EpilogueFunction epilogue = nullptr;  // null: c is what the sums are
  // What follows where the sums of this part of c are complete.
  void finish(const Rectangle& at) const {
    if (epilogue != nullptr) epilogue(epilogue_job, at);
  }
  // The same of a part of the product formed, which may be c's transpose.
  void finish_formed(const Rectangle& at) const {
    finish(transposed ? Rectangle{at.batch, at.col, at.row, at.cols, at.rows} : at);
  }
  EpilogueJob epilogue_job;  // behind what every run reads
};

// A phase of a kernel that goes on for this many multiply-adds is worth timing: at two vectors of
// 16 a cycle they take 8192 cycles, of which two readings of the clock are less than a hundredth.
inline constexpr std::int64_t least_timed = std::int64_t{1} << 18;
// The calling thread's log for a piece of work beside so many multiply-adds; null: it is not timed.
inline PhaseLog* log_beside(std::int64_t multiply_adds) {
  return multiply_adds >= least_timed ? phase_log : nullptr;
}

// task(number, thread) for each of `tasks`: those of a batch in runs of neighbours, where they are
// so many and so small that handing out each, by an atomic increment that all contend for, counts.
template <class Task>
void run_tasks(const Job& job, std::int64_t tasks, const Task& task) {
  const std::int64_t most = job.g.batch > 1 ? std::int64_t{8} * job.threads : tasks;
  const std::int64_t count = std::min(tasks, most);
  const Shares runs(tasks, count);
  const auto hand_out = count < tasks ? parallel_for_static : parallel_for;
  hand_out(job.pool, job.threads, count, [&](std::int64_t run, int thread) {
    for (std::int64_t t = runs.begin(run); t < runs.begin(run + 1); ++t) task(t, thread);
  });
}

// The functions that each ISA target exports.
using RunFunction = void (*)(const Job&);
using PackFunction = void (*)(const Job&, const MatrixView& b, float* to);
using MicroTileFunction = MicroTile (*)();

}  // namespace rooflane::gemm
