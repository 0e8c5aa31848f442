// The macro-kernel of the hwy GEMM, for the ISA target being compiled: the two loops around the
// micro-kernel, over the A micro-panels of an mc×kc block of a and over B micro-panels, and what is
// prefetched meanwhile. m is innermost where a is packed, else n. The loops around it:
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

// As many rows as the block has steps of k, `width` floats of each, to be prefetched.
struct PrefetchRows {
  const float* data = nullptr;
  int64_t ld = 0, width = 0;
};

// Rows [i0,i1) × k [p,p+klen) of a, times B micro-panels.
struct Block {
  int64_t batch = 0, i0 = 0, i1 = 0, p = 0, klen = 0;
  bool first = true;         // nothing was summed before
  const float* a = nullptr;  // A micro-panels of rows i0…; null: read in place
  const float* b = nullptr;  // B micro-panels, the first of columns j0 on at 0; null: read in place
  Sums sums = {};
  PrefetchRange next_block[2] = {};  // what the block after this one reads
  PrefetchRows next_rows = {};       // what is packed after this block
  // The same of packed operands: its A micro-panels, and its first B micro-panel.
  PrefetchRange next_a = {};
  const float* next_b = nullptr;
};

// The B micro-panels [s0,s1) of the columns from j0 on.
struct MicroPanelRange {
  MicroPanels b_panels;
  int64_t j0, s0, s1;
};

// Rows of a micro-tile of `width` columns where a is read in place.
inline int64_t MicroTileRows(int64_t mr, int64_t width) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int rows = TallRows(static_cast<int>(pieces(width, lanes)));
  return std::min<int64_t>(mr, rows);
}

class MacroKernel {
 public:
  MacroKernel(const Job& job, const MicroPanelRange& range, const Block& block)
      : job_(job),
        range_(range),
        block_(block),
        tiles_(pieces(
            block.i1 - block.i0,
            block.a != nullptr ? kMr : MicroTileRows(job.mr, range.b_panels.width(range.s0)))),
        rows_(block.i1 - block.i0, tiles_) {
    t_.k = block.klen;
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
  }

  void Run() { block_.a != nullptr ? RunPacked() : RunInPlace(); }

 private:
  // m innermost: a B micro-panel stays in L1 while those of a come from L2. The next one of b is
  // prefetched evenly meanwhile, the next block of a during all of this one.
  void RunPacked() {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    const int64_t calls = std::max<int64_t>(1, block_.klen / 8);  // of a micro-kernel
    PrefetchQueue queues[2];
    t_.queues = queues;
    t_.a_outer = 1;
    queues[0] = PrefetchQueue(block_.next_a.data, block_.next_a.floats,
                              tiles_ * (range_.s1 - range_.s0) * calls);
    for (int64_t s = range_.s0; s < range_.s1; ++s) {
      const int64_t begin = range_.b_panels.begin(s), width = range_.b_panels.width(s);
      const bool partial = width < range_.b_panels.nr();
      const PhaseTimer timer(
          partial ? log_beside((block_.i1 - block_.i0) * block_.klen * width) : nullptr,
          RunPhase::tail);
      t_.b = block_.b + begin * block_.klen;
      t_.cols = t_.ldb = width;
      // B micro-panels and blocks of k lie one behind the other.
      const float* const next = s + 1 == range_.s1 ? block_.next_b : t_.b + width * block_.klen;
      queues[1] = PrefetchQueue(next, next != nullptr ? width * block_.klen : 0, tiles_ * calls);
      for (int64_t tile = 0; tile < tiles_; ++tile) {
        const int64_t row = rows_.begin(tile), count = rows_.size(tile);
        t_.a = block_.a + row * block_.klen;
        t_.c = c_ + row * t_.ldc + range_.j0 + begin;
        t_.c0 = c0_ + row * t_.ldc0 + range_.j0 + begin;
        MicroKernelFor<true, 0>(count, (width + lanes - 1) / lanes)(t_);
        if (finishes_) Finish(row, count, range_.j0 + begin);
      }
    }
  }

  // n innermost: rows of a in place stay in L1, B micro-panels come from L2, and c is written row
  // by row. Where k is short, what surrounds a micro-kernel counts: only changes are set.
  void RunInPlace() {
    const MatrixView &a = job_.a, &b = job_.b;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    const int64_t first = range_.b_panels.begin(range_.s0), j0 = range_.j0 + first;
    const bool packed_b = block_.b != nullptr;
    const int64_t b_outer = packed_b ? block_.klen : b.outer;
    const float* const b_data =
        packed_b ? block_.b + first * b_outer
                 : b.f32() + block_.batch * b.batch_stride + block_.p * b.inner + j0 * b_outer;
    // Lines a step of k: one where all micro-tiles together then prefetch all of the next block.
    const int64_t next_floats = block_.next_block[0].floats + block_.next_block[1].floats;
    const int64_t micro_tiles = tiles_ * (range_.s1 - range_.s0);
    const bool one =
        next_floats <= 16 * micro_tiles * block_.klen && block_.next_rows.width <= 16 * micro_tiles;
    if (!one) next_step_ = 3 * 16;
    next_rows_ = block_.next_rows;
    t_.a = a.f32() + block_.batch * a.batch_stride + block_.p * a.inner + block_.i0 * a.outer;
    t_.a_outer = a.outer;
    t_.a_inner = a.inner;
    t_.ldb = b.inner;
    t_.cols = 0;
    MicroKernelFunction compute = nullptr;
    for (int64_t tile = 0, rows = 0; tile < tiles_; ++tile) {
      const int64_t row = rows_.begin(tile), count = rows_.size(tile);
      int64_t j = j0;
      t_.b = b_data;
      t_.c = c_ + row * t_.ldc + j0;
      t_.c0 = c0_ + row * t_.ldc0 + j0;
      for (int64_t s = range_.s0; s < range_.s1; ++s) {
        const int64_t width = range_.b_panels.width(s);
        if (width != t_.cols || count != rows) {
          t_.cols = width;
          if (packed_b) t_.ldb = width;
          rows = count;
          const int64_t vectors = (width + lanes - 1) / lanes;
          compute = (one ? MicroKernelFor<false, 1> : MicroKernelFor<false, 3>)(rows, vectors);
        }
        if (!PrefetchNextPacked() && !PrefetchNextBlock()) PrefetchNextRows(tile, s, count);
        compute(t_);
        if (finishes_) Finish(row, count, j);
        j += width;
        t_.b += width * b_outer;
        t_.c += width;
        t_.c0 += width;
      }
      t_.a += count * a.outer;
    }
  }

  // What the block after this one reads, in the order of memory, as long as there is some left.
  bool PrefetchNextBlock() {
    while (next_.floats <= 0 && ranges_begun_ < 2) next_ = block_.next_block[ranges_begun_++];
    if (next_.floats <= 0) return false;
    t_.prefetch = next_.data;
    t_.prefetch_step = next_step_;
    next_.data += next_step_ * t_.k;
    next_.floats -= next_step_ * t_.k;
    return true;
  }

  // The rows that are packed next, some columns of all of them with a micro-tile.
  bool PrefetchNextPacked() {
    if (next_rows_.width <= 0) return false;
    t_.prefetch = next_rows_.data;
    t_.prefetch_step = next_rows_.ld;
    next_rows_.data += next_step_;
    next_rows_.width -= next_step_;
    return true;
  }

  // What the next micro-tile reads of a, beside B micro-panel `s` of this one's. The last one's
  // next are the rows of the first in the next block of k.
  void PrefetchNextRows(int64_t tile, int64_t s, int64_t count) {
    const MatrixView& a = job_.a;
    t_.prefetch = t_.a;
    t_.prefetch_step = 0;
    if (a.inner == 1 && a.outer != block_.klen) {
      // A row beside each B micro-panel: the hardware prefetcher starts again with each of them.
      if (s - range_.s0 >= count) return;
      t_.prefetch += tile + 1 < tiles_ ? (count + s - range_.s0) * a.outer
                                       : (s - range_.s0 - rows_.begin(tile)) * a.outer + t_.k;
      t_.prefetch_step = 1;
    } else if (s + 1 == range_.s1 && a.inner == 1) {
      // Rows that follow this one's without a gap.
      t_.prefetch += count * t_.k;
      t_.prefetch_step = count;
    } else if (s == range_.s0 && a.outer == 1 && a.inner != 1) {
      // The part of each column of a column-major a: its last line, as this micro-tile ends in its
      // first. The hardware prefetcher does not follow strides beyond a page.
      t_.prefetch += 2 * count - 1;
      t_.prefetch_step = a.inner;
    }
  }

  // The epilogue of the micro-tile just stored, in L1.
  void Finish(int64_t row, int64_t count, int64_t col) const {
    job_.finish({block_.batch, block_.i0 + row, col, count, t_.cols});
  }

  const Job& job_;
  const MicroPanelRange& range_;
  const Block& block_;
  const int64_t tiles_;
  const Shares rows_;
  MicroKernelArgs t_;
  // c's element in the block's first row and column 0.
  float* c_;
  const float* c0_;
  bool finishes_;  // the block is k's last and its sums are c
  PrefetchRange next_;
  PrefetchRows next_rows_;
  int ranges_begun_ = 0;
  int64_t next_step_ = 16;  // floats a step of k
};

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
