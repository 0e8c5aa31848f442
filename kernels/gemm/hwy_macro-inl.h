// The macro-kernel of the hwy GEMM, for the ISA target being compiled: the two loops around the
// micro-kernel, over the A micro-panels of an mc×kc block of a and over B micro-panels, in the
// order that the schedule says, and what is prefetched meanwhile. The loops around it:
// hwy_loops-inl.h.
#if defined(ROOFLANE_GEMM_HWY_MACRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_MACRO_INL_H_
#undef ROOFLANE_GEMM_HWY_MACRO_INL_H_
#else
#define ROOFLANE_GEMM_HWY_MACRO_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// Packs a block of b, klen × width: B micro-panel after B micro-panel, each [klen][its width].
inline void PackB(const MatrixView& b, const float* from, int64_t klen, const MicroPanels& b_panels,
                  int64_t first, int64_t last, float* to) {
  PackMicroPanels(
      from, b, klen, first, last, [&](int64_t s) { return b_panels.begin(s); }, to);
}

// Sums that do not go to c at once: [rows][ld], from row i0 and column j0 of the product on.
struct Sums {
  float* data = nullptr;
  int64_t ld = 0, i0 = 0, j0 = 0;
};

// Floats that lie in a row, to be prefetched.
struct PrefetchRange {
  const float* data = nullptr;
  int64_t floats = 0;
};

// Rows [i0,i1) × k [p,p+klen) of a, times B micro-panels.
struct Block {
  int64_t batch, i0, i1, p, klen;
  bool first;      // nothing was summed before
  bool more;       // the same rows and micro-panels × the k after it come next
  const float* a;  // A micro-panels of rows i0…; null: read in place
  // The same, while they are yet to be packed, each before its first use.
  float* pack_into = nullptr;
  const float* b;  // B micro-panels, the first of columns j0 on at 0; null: read in place
  Sums sums = {};
  PrefetchRange next_block[2] = {};  // what the block after this one reads
  // The same of packed operands: its A micro-panels, and its first B micro-panel.
  PrefetchRange next_a = {};
  const float* next_b = nullptr;
};

// The B micro-panels [s0,s1) of the columns from j0 on.
struct MicroPanelRange {
  MicroPanels b_panels;
  int64_t j0, s0, s1;
};

// The first of a's values in a block.
inline const float* FirstOfA(const Job& job, const Block& block) {
  return job.a.f32() + block.batch * job.a.batch_stride + block.p * job.a.inner +
         block.i0 * job.a.outer;
}

// Packs rows [i0,i1) × k [p,p+klen) of a as A micro-panels of kMr rows or nearly: of those,
// [first,last).
inline void PackMicroPanelsOfA(const Job& job, const Block& block, const Shares& rows,
                               int64_t first, int64_t last, float* to) {
  PackMicroPanels(
      FirstOfA(job, block), job.a, block.klen, first, last,
      [&](int64_t q) { return rows.begin(q); }, to);
}

inline void PackBlockOfA(const Job& job, const Block& block, float* to) {
  const int64_t tiles = pieces(block.i1 - block.i0, kMr);
  const Shares rows(block.i1 - block.i0, tiles);
  for (int64_t tile = 0; tile < tiles; tile += micro_panels_at_once) {
    PackMicroPanelsOfA(job, block, rows, tile, std::min(tiles, tile + micro_panels_at_once), to);
  }
}

// Rows of a micro-tile of `width` columns where a is read in place.
inline int64_t MicroTileRows(int64_t mr, int64_t width) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int rows = TallRows(static_cast<int>(pieces(width, lanes)));
  return std::min<int64_t>(mr, rows);
}

class MacroKernel {
 public:
  MacroKernel(const Job& job, const MicroPanelRange& range, const Block& block)
      : job_(job), range_(range), block_(block) {
    CutIntoMicroTiles(range.b_panels.width(range.s0));
    t_.k = block.klen;
    t_.queues = queues_;
    const Sums& sums = block.sums;
    finishes_ = job.epilogue != nullptr && sums.data == nullptr && block.p + block.klen == job.g.k;
    if (sums.data != nullptr) {
      t_.alpha = 1;
      t_.beta = block.first ? 0.0f : 1.0f;
      c_ = sums.data + (block.i0 - sums.i0) * sums.ld - sums.j0;
      t_.ldc = t_.ldc0 = sums.ld;
      c0_ = c_;
    } else {
      const Start start = StartOf(job, block.first, block.batch, block.i0, 0);
      t_.alpha = job.g.alpha;
      t_.beta = start.beta;
      c_ = job.c.row(block.batch, block.i0);
      t_.ldc = job.c.ld;
      c0_ = start.beta == 0 ? c_ : start.data;
      t_.ldc0 = start.ld;
    }
    const MatrixView& a = job.a;
    if (block.a != nullptr) {
      a_ = block.a;
      a_row_ = block.klen;
      t_.a_outer = 1;
    } else {
      a_ = FirstOfA(job, block);
      a_row_ = t_.a_outer = a.outer;
      t_.a_inner = a.inner;
      a_rows_adjoin_ = a.inner == 1 && a.outer == block.klen;
      a_column_major_ = a.outer == 1 && a.inner != 1;
    }
    if (block.next_a.floats > 0) {
      queues_[0] = PrefetchQueue(block.next_a.data, 0, div_up(block.next_a.floats, 16), 1,
                                 tiles_ * (range.s1 - range.s0) * QueueCalls());
    }
    const int64_t next_block = block.next_block[0].floats + block.next_block[1].floats;
    const int64_t steps = tiles_ * (range.s1 - range.s0) * block.klen;
    next_step_of_blocks_ = next_block <= 16 * steps ? 16 : 3 * 16;
  }

  void Run() {
    if (job_.order) {
      RowsOfMicroTiles(range_.s0, range_.s1);
      return;
    }
    const int64_t depth = (block_.i1 - block_.i0) * block_.klen;
    for (int64_t s = range_.s0; s < range_.s1; ++s) {
      const int64_t width = range_.b_panels.width(s);
      const bool partial = width < range_.b_panels.nr();
      const PhaseTimer timer(partial ? log_beside(depth * width) : nullptr, RunPhase::tail);
      CutIntoMicroTiles(width);
      SetMicroPanelOfB(s);
      for (int64_t tile = 0; tile < tiles_; ++tile) {
        if (block_.pack_into != nullptr && s == range_.s0) PackBeforeUse(tile);
        Compute(tile);
      }
    }
  }

 private:
  // Cuts the rows into micro-tiles of `width` columns.
  void CutIntoMicroTiles(int64_t width) {
    const int64_t most = block_.a != nullptr ? kMr : MicroTileRows(job_.mr, width);
    if (most == tile_rows_) return;
    tile_rows_ = most;
    const int64_t rows = block_.i1 - block_.i0;
    tiles_ = pieces(rows, most);
    rows_ = Shares(rows, tiles_);
  }

  // Packs the A micro-panel that a micro-tile needs, or as many as are packed together; what the
  // next ones are made of is prefetched while the micro-tiles of these are computed.
  void PackBeforeUse(int64_t tile) {
    const MatrixView& a = job_.a;
    const bool along_k = a.inner == 1;
    const int64_t group = along_k ? 1 : micro_panels_at_once;
    if (tile % group != 0) return;
    const int64_t next = std::min(tiles_, tile + group);
    const int64_t cols = range_.b_panels.begin(range_.s1) - range_.b_panels.begin(range_.s0);
    const PhaseTimer timer(log_beside((rows_.begin(next) - rows_.begin(tile)) * block_.klen * cols),
                           RunPhase::pack);
    PackMicroPanelsOfA(job_, block_, rows_, tile, next, block_.pack_into);
    const int64_t begin = rows_.begin(next), end = rows_.begin(std::min(tiles_, next + group));
    queues_[0] = {};
    if (begin == end) return;
    const float* from = FirstOfA(job_, block_) + begin * a.outer;
    // Rows need not begin a line.
    queues_[0] = along_k ? PrefetchQueue(from, a.outer, block_.klen / 16 + 1, end - begin,
                                         group * QueueCalls())
                         : PrefetchQueue(from, a.inner, (end - begin) / 16 + 1, block_.klen,
                                         group * QueueCalls());
  }

  // How often a micro-kernel over packed operands asks the prefetch queues.
  int64_t QueueCalls() const { return std::max<int64_t>(1, block_.klen / 8); }

  // n innermost: the A micro-panel stays in L1, all B micro-panels come from L2, and c is written
  // row by row. For a skinny n or a short k.
  void RowsOfMicroTiles(int64_t s0, int64_t s1) {
    if (s0 == s1) return;
    CutIntoMicroTiles(range_.b_panels.width(s0));
    const bool prefetches =
        block_.more || block_.next_block[0].floats > 0 || block_.next_block[1].floats > 0;
    if (!prefetches && s1 - s0 == 1) {
      ColumnOfMicroTiles(s0);
      return;
    }
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      if (!prefetches) {
        RowOfMicroTiles(tile, s0, s1);
        continue;
      }
      for (int64_t s = s0; s < s1; ++s) {
        SetMicroPanelOfB(s);
        Compute(tile);
      }
    }
  }

  // The micro-tiles of one B micro-panel, one below the other; only what the next one reads of a is
  // prefetched. Where k is short, what surrounds a micro-kernel counts: only changes are set.
  void ColumnOfMicroTiles(int64_t s) {
    SetMicroPanelOfB(s);
    t_.a = t_.prefetch = a_;
    t_.prefetch_step = 0;
    t_.c = c_ + j_;
    t_.c0 = c0_ + j_;
    MicroKernelFunction compute = nullptr;
    int64_t rows = 0;
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      const int64_t count = rows_.size(tile);
      if (count != rows) {
        compute = BareMicroKernel(count, vectors_);
        if (block_.a != nullptr) t_.a_inner = count;
        rows = count;
      }
      if (a_rows_adjoin_) PrefetchNextRows(count);
      if (a_column_major_) PrefetchNextColumns(count);
      compute(t_);
      if (finishes_) Finish(rows_.begin(tile), count);
      t_.a += count * a_row_;
      t_.c += count * t_.ldc;
      t_.c0 += count * t_.ldc0;
    }
  }

  // The micro-kernel that prefetches nothing but a.
  MicroKernelFunction BareMicroKernel(int64_t count, int64_t vectors) const {
    const bool packed = block_.a != nullptr && block_.b != nullptr;
    return (packed ? MicroKernelFor<true, 0> : MicroKernelFor<false, 1>)(count, vectors);
  }

  // A row of micro-tiles during which only what the next row reads of a is prefetched. Where k is
  // short, what surrounds a micro-kernel counts: only what differs from the last one is set.
  void RowOfMicroTiles(int64_t tile, int64_t s0, int64_t s1) {
    const MatrixView& b = job_.b;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    const int64_t row = rows_.begin(tile), count = rows_.size(tile);
    const int64_t begin = range_.b_panels.begin(s0);
    const bool packed_a = block_.a != nullptr, packed_b = block_.b != nullptr;
    const int64_t b_outer = packed_b ? block_.klen : b.outer;
    t_.a = t_.prefetch = a_ + row * a_row_;
    if (packed_a) t_.a_inner = count;
    t_.prefetch_step = 0;
    t_.b = packed_b ? block_.b + begin * b_outer
                    : b.f32() + block_.batch * b.batch_stride + block_.p * b.inner +
                          (range_.j0 + begin) * b_outer;
    t_.ldb = b.inner;
    t_.c = c_ + row * t_.ldc + range_.j0 + begin;
    t_.c0 = c0_ + row * t_.ldc0 + range_.j0 + begin;
    t_.cols = 0;
    MicroKernelFunction compute = nullptr;
    if (a_column_major_) PrefetchNextColumns(count);
    for (int64_t s = s0; s < s1; ++s) {
      const int64_t width = range_.b_panels.width(s);
      if (width != t_.cols) {
        const int64_t vectors = (width + lanes - 1) / lanes;
        compute = BareMicroKernel(count, vectors);
        t_.cols = width;
        if (packed_b) t_.ldb = width;
      }
      if (s + 1 == range_.s1 && a_rows_adjoin_) PrefetchNextRows(count);
      compute(t_);
      if (finishes_) {
        j_ = range_.j0 + range_.b_panels.begin(s);
        Finish(row, count);
      }
      if (a_column_major_) t_.prefetch = t_.a, t_.prefetch_step = 0;  // done with the first
      t_.b += width * b_outer;
      t_.c += width;
      t_.c0 += width;
    }
  }

  // The next micro-tile's rows of a follow this one's without a gap.
  void PrefetchNextRows(int64_t count) {
    t_.prefetch = t_.a + count * t_.k;
    t_.prefetch_step = count;
  }

  // The next micro-tile's part of each column of a column-major a: its last line, as this
  // micro-tile ends in its first. The hardware prefetcher does not follow strides beyond a page.
  void PrefetchNextColumns(int64_t count) {
    t_.prefetch = t_.a + 2 * count - 1;
    t_.prefetch_step = t_.a_inner;
  }

  void SetMicroPanelOfB(int64_t s) {
    const MatrixView& b = job_.b;
    const int64_t begin = range_.b_panels.begin(s), width = range_.b_panels.width(s);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    last_ = s + 1 == range_.s1;
    j_ = range_.j0 + begin;
    vectors_ = (width + lanes - 1) / lanes;
    t_.cols = width;
    t_.ldb = width;
    if (block_.b != nullptr) {
      t_.b = block_.b + begin * block_.klen;
      // B micro-panels and blocks of k lie one behind the other. With n innermost all of them are
      // in L2 already.
      next_ = job_.order ? nullptr : last_ ? block_.next_b : t_.b + width * block_.klen;
      if (block_.a != nullptr) {
        // Evenly during all micro-tiles of this one.
        queues_[1] = next_ == nullptr ? PrefetchQueue()
                                      : PrefetchQueue(next_, 0, width * block_.klen / 16, 1,
                                                      tiles_ * QueueCalls());
        return;
      }
      next_step_ = tiles_ < 3 ? width / tiles_ : 16;
      next_line_ = next_step_ * block_.klen;
      next_tiles_ = tiles_;
      return;
    }
    t_.b = b.f32() + block_.batch * b.batch_stride + block_.p * b.inner + j_ * b.outer;
    t_.ldb = b.inner;
    next_ = job_.order || last_ ? nullptr : t_.b + width * b.outer;
    if (last_ && block_.more) {
      next_ = t_.b + block_.klen * b.inner - (begin - range_.b_panels.begin(range_.s0)) * b.outer;
    }
    // The last of every 16 floats: if rows do not begin a line, this micro-panel has already read
    // the line in which the next one begins, and ends in one more line than its floats fill.
    if (next_ != nullptr) next_ += 15;
    next_line_ = 16, next_step_ = b.inner, next_tiles_ = 1;
  }

  // The epilogue of the micro-tile just stored, in L1.
  void Finish(int64_t row, int64_t count) const {
    job_.finish({block_.batch, block_.i0 + row, j_, count, t_.cols});
  }

  void Compute(int64_t tile) {
    Sum(tile);
    if (finishes_) Finish(rows_.begin(tile), rows_.size(tile));
  }

  void Sum(int64_t tile) {
    const int64_t r = rows_.begin(tile), count = rows_.size(tile);
    t_.c = c_ + r * t_.ldc + j_;
    t_.c0 = c0_ + r * t_.ldc0 + j_;
    t_.a = a_ + r * a_row_;
    if (block_.a != nullptr) t_.a_inner = count;
    if (block_.a != nullptr && block_.b != nullptr) {
      MicroKernelFor<true, 0>(count, vectors_)(t_);
      return;
    }
    if (!job_.order && t_.k > 8 && t_.k <= 32) {
      // Most of the traffic is c's: what the next micro-tile writes. (With a longer k it is not,
      // and with n innermost the next micro-tile's lines adjoin.)
      t_.prefetch = t_.c + count * t_.ldc;
      t_.prefetch_step = t_.ldc;
      MicroKernelFor<false, 3>(count, vectors_)(t_);
      return;
    }
    if (prefetch_range_.floats > 0 || NextPrefetchRange()) {
      t_.prefetch = prefetch_range_.data;
      t_.prefetch_step = next_step_of_blocks_;
      prefetch_range_.data += next_step_of_blocks_ * t_.k;
      prefetch_range_.floats -= next_step_of_blocks_ * t_.k;
      (next_step_of_blocks_ == 16 ? MicroKernelFor<false, 1>
                                  : MicroKernelFor<false, 3>)(count, vectors_)(t_);
      return;
    }
    t_.prefetch = t_.a;
    t_.prefetch_step = 0;
    if (last_ && a_rows_adjoin_) PrefetchNextRows(count);
    if (next_ != nullptr && tile < (tiles_ < 3 ? next_tiles_ : 3)) {
      t_.prefetch = next_ + tile * next_line_;
      t_.prefetch_step = next_step_;
      if (tiles_ < 3) {
        MicroKernelFor<false, 3>(count, vectors_)(t_);
        return;
      }
    }
    MicroKernelFor<false, 1>(count, vectors_)(t_);
  }

  bool NextPrefetchRange() {
    while (ranges_begun_ < 2) {
      prefetch_range_ = block_.next_block[ranges_begun_++];
      if (prefetch_range_.floats > 0) return true;
    }
    return false;
  }

  const Job& job_;
  const MicroPanelRange& range_;
  const Block& block_;
  int64_t tile_rows_ = 0, tiles_ = 0;
  Shares rows_{0, 1};
  MicroKernelArgs t_;
  PrefetchQueue queues_[2];  // of a, of b
  // c's element in the block's first row and column 0.
  float* c_;
  const float* c0_;
  const float* a_;
  int64_t a_row_;
  bool a_rows_adjoin_ = false;
  bool a_column_major_ = false;
  bool finishes_ = false;  // the block is k's last and its sums are c
  int64_t j_ = 0, vectors_ = 0;
  bool last_ = false;
  const float* next_ = nullptr;
  int64_t next_line_ = 0, next_step_ = 0, next_tiles_ = 0;
  PrefetchRange prefetch_range_;
  int ranges_begun_ = 0;
  int64_t next_step_of_blocks_;  // floats a step of k: a line where all micro-tiles together then
                                 // prefetch all of next_block, else three
};

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
