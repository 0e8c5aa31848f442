// A block of a times panels of b, tile by tile, for the ISA target being compiled: which tile comes
// when, and what is fetched ahead meanwhile. Which blocks there are: hwy_loops-inl.h.
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

// A packed block of b, klen × width: panel after panel, each [klen][panel width].
inline void PackB(const Side& b, const float* from, int64_t klen, const MicroPanels& panels,
                  int64_t first, int64_t last, float* to) {
  PackPanels(
      from, b, klen, first, last, [&](int64_t s) { return panels.begin(s); }, to);
}

// Sums that do not go to c at once: [rows][ld], from row i0 and column j0 of the product on.
struct Sums {
  float* data = nullptr;
  int64_t ld = 0, i0 = 0, j0 = 0;
};

// Floats that lie in a row, to be fetched ahead.
struct Floats {
  const float* data = nullptr;
  int64_t floats = 0;
};

// Rows [i0,i1) × k [p,p+klen) of a, times panels of b.
struct Block {
  int64_t batch, i0, i1, p, klen;
  bool first;                 // nothing was summed before
  bool more;                  // the same rows and panels × the k after it come next
  const float* a;             // packed panels of rows i0…; null: read in place
  float* unpacked = nullptr;  // `a`, while its panels are still to be packed before their first use
  const float* b;             // packed panels, the first of columns j0 on at 0; null: read in place
  Sums sums = {};
  Floats next_block[2] = {};  // what the block after this one reads
};

// The panels [s0,s1) of the columns from j0 on.
struct PanelRange {
  MicroPanels panels;
  int64_t j0, s0, s1;
};

// The first of a's values in a block.
inline const float* FirstOfA(const Job& job, const Block& block) {
  return job.a.data + block.batch * job.a.batch_stride + block.p * job.a.inner +
         block.i0 * job.a.outer;
}

// Packs rows [i0,i1) × k [p,p+klen) of a as panels of kMr rows or nearly: of those, [first,last).
inline void PackPanelsOfA(const Job& job, const Block& block, const Shares& rows, int64_t first,
                          int64_t last, float* to) {
  PackPanels(
      FirstOfA(job, block), job.a, block.klen, first, last,
      [&](int64_t q) { return rows.begin(q); }, to);
}

// Panels that are packed together where a is contiguous across them: as many write streams as L1
// keeps apart.
constexpr int64_t kPanelsAtOnce = 16;

inline void PackRowsOfA(const Job& job, const Block& block, float* to) {
  const int64_t tiles = pieces(block.i1 - block.i0, kMr);
  const Shares rows(block.i1 - block.i0, tiles);
  for (int64_t tile = 0; tile < tiles; tile += kPanelsAtOnce) {
    PackPanelsOfA(job, block, rows, tile, std::min(tiles, tile + kPanelsAtOnce), to);
  }
}

// Rows of a tile over a read in place and `width` columns of b.
inline int64_t MicroTileRows(int64_t mr, int64_t width) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int rows = TallRows(static_cast<int>(pieces(width, lanes)));
  return std::min<int64_t>(mr, rows);
}

class MacroKernel {
 public:
  MacroKernel(const Job& job, const PanelRange& range, const Block& block)
      : job_(job), range_(range), block_(block) {
    SetTiles(range.panels.width(range.s0));
    t_.k = block.klen;
    t_.fetch = fetch_;
    t_.stream = job.stream_c && block.sums.data == nullptr;
    const Sums& sums = block.sums;
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
    const Side& a = job.a;
    if (block.a != nullptr) {
      a_ = block.a;
      a_row_ = block.klen;
      t_.a_outer = 1;
    } else {
      a_ = FirstOfA(job, block);
      a_row_ = t_.a_outer = a.outer;
      t_.a_inner = a.inner;
      a_in_a_row_ = a.inner == 1 && a.outer == block.klen;
      a_along_m_ = a.outer == 1 && a.inner != 1;
    }
    const int64_t next_block = block.next_block[0].floats + block.next_block[1].floats;
    const int64_t steps = tiles_ * (range.s1 - range.s0) * block.klen;
    next_step_of_blocks_ = next_block <= 16 * steps ? 16 : 3 * 16;
  }

  void Run() {
    if (job_.order) {
      RowsOfTiles(range_.s0, range_.s1);
      return;
    }
    for (int64_t s = range_.s0; s < range_.s1; ++s) {
      SetTiles(range_.panels.width(s));
      SetPanel(s);
      for (int64_t tile = 0; tile < tiles_; ++tile) {
        if (block_.unpacked != nullptr && s == range_.s0) PackBefore(tile);
        Compute(tile);
      }
    }
  }

 private:
  // Cuts the rows into tiles that serve panels of at most `width` columns.
  void SetTiles(int64_t width) {
    const int64_t most = block_.a != nullptr ? kMr : MicroTileRows(job_.mr, width);
    if (most == tile_rows_) return;
    tile_rows_ = most;
    const int64_t rows = block_.i1 - block_.i0;
    tiles_ = pieces(rows, most);
    rows_ = Shares(rows, tiles_);
  }

  // The panel that a tile needs, or as many as are packed together; the next ones are fetched while
  // the tiles of these are computed.
  void PackBefore(int64_t tile) {
    const Side& a = job_.a;
    const bool along_k = a.inner == 1;
    const int64_t group = along_k ? 1 : kPanelsAtOnce;
    if (tile % group != 0) return;
    const int64_t next = std::min(tiles_, tile + group);
    PackPanelsOfA(job_, block_, rows_, tile, next, block_.unpacked);
    const int64_t begin = rows_.begin(next), end = rows_.begin(std::min(tiles_, next + group));
    fetch_[0] = {};
    if (begin == end) return;
    const float* from = FirstOfA(job_, block_) + begin * a.outer;
    // Rows need not begin a line.
    fetch_[0] = along_k
                    ? Fetch(from, a.outer, block_.klen / 16 + 1, end - begin, group * Turns())
                    : Fetch(from, a.inner, (end - begin) / 16 + 1, block_.klen, group * Turns());
  }

  // How often a packed tile fetches something.
  int64_t Turns() const { return std::max<int64_t>(1, block_.klen / 8); }

  // One row of tiles after the other: a's panel stays in L1, all panels come from L2, and c is
  // written along its rows. For few panels or a short k.
  void RowsOfTiles(int64_t s0, int64_t s1) {
    if (s0 == s1) return;
    SetTiles(range_.panels.width(s0));
    const bool fetches =
        block_.more || block_.next_block[0].floats > 0 || block_.next_block[1].floats > 0;
    if (!fetches && s1 - s0 == 1) {
      PanelOfTiles(s0);
      return;
    }
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      if (!fetches) {
        RowOfTiles(tile, s0, s1);
        continue;
      }
      for (int64_t s = s0; s < s1; ++s) {
        SetPanel(s);
        Compute(tile);
      }
    }
  }

  // The tiles of a sweep of one panel, one below the other; nothing is fetched but what the next
  // tile reads of a. Where k is short, what surrounds a tile counts (Sapphire Rapids, 2500 × 32: k
  // = 2 22.3 → 29.1 GF/s, k = 9 54 → 72, k = 32 77 → 85).
  void PanelOfTiles(int64_t s) {
    SetPanel(s);
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
      if (a_in_a_row_) PrefetchNextRows(count);
      if (a_along_m_) PrefetchNextColumns(count);
      compute(t_);
      t_.a += count * a_row_;
      t_.c += count * t_.ldc;
      t_.c0 += count * t_.ldc0;
    }
  }

  // The tile for which nothing is fetched but of a.
  MicroKernelFunction BareMicroKernel(int64_t count, int64_t vectors) const {
    const bool packed = block_.a != nullptr && block_.b != nullptr;
    return (packed ? MicroKernelFor<true, 0> : MicroKernelFor<false, 1>)(count, vectors);
  }

  // A row of tiles for which nothing is fetched but what the next row reads of a. Where k is short,
  // what surrounds a tile counts: only what differs from the last one is set (Sapphire Rapids, k =
  // 16: 512 × 528 69.7 → 80.6 GF/s, 512 × 48 70.0 → 78.2).
  void RowOfTiles(int64_t tile, int64_t s0, int64_t s1) {
    const Side& b = job_.b;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    const int64_t row = rows_.begin(tile), count = rows_.size(tile);
    const int64_t begin = range_.panels.begin(s0);
    const bool packed_a = block_.a != nullptr, packed_b = block_.b != nullptr;
    const int64_t b_outer = packed_b ? block_.klen : b.outer;
    t_.a = t_.prefetch = a_ + row * a_row_;
    if (packed_a) t_.a_inner = count;
    t_.prefetch_step = 0;
    t_.b = packed_b ? block_.b + begin * b_outer
                    : b.data + block_.batch * b.batch_stride + block_.p * b.inner +
                          (range_.j0 + begin) * b_outer;
    t_.ldb = b.inner;
    t_.c = c_ + row * t_.ldc + range_.j0 + begin;
    t_.c0 = c0_ + row * t_.ldc0 + range_.j0 + begin;
    t_.cols = 0;
    MicroKernelFunction compute = nullptr;
    if (a_along_m_) PrefetchNextColumns(count);
    for (int64_t s = s0; s < s1; ++s) {
      const int64_t width = range_.panels.width(s);
      if (width != t_.cols) {
        const int64_t vectors = (width + lanes - 1) / lanes;
        compute = BareMicroKernel(count, vectors);
        t_.cols = width;
        if (packed_b) t_.ldb = width;
      }
      if (s + 1 == range_.s1 && a_in_a_row_) PrefetchNextRows(count);
      compute(t_);
      if (a_along_m_) t_.prefetch = t_.a, t_.prefetch_step = 0;  // the first panel has fetched them
      t_.b += width * b_outer;
      t_.c += width;
      t_.c0 += width;
    }
  }

  // The next tile's rows follow this one's without a gap.
  void PrefetchNextRows(int64_t count) {
    t_.prefetch = t_.a + count * t_.k;
    t_.prefetch_step = count;
  }

  // The next tile's part of each column of a, whose rows lie side by side: its last line, as this
  // tile ends in its first. The hardware does not follow strides beyond a page (Sapphire Rapids, 2
  // threads, 3000 × 160 × 400 of a transposed a 122 → 239 GF/s, 4000 × 32 × 200 150 → 190; packing
  // a instead 215 and 125).
  void PrefetchNextColumns(int64_t count) {
    t_.prefetch = t_.a + 2 * count - 1;
    t_.prefetch_step = t_.a_inner;
  }

  void SetPanel(int64_t s) {
    const Side& b = job_.b;
    const int64_t begin = range_.panels.begin(s), width = range_.panels.width(s);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
    // Along rows of tiles all panels are in L2 already.
    last_ = s + 1 == range_.s1;
    j_ = range_.j0 + begin;
    vectors_ = (width + lanes - 1) / lanes;
    t_.cols = width;
    t_.ldb = width;
    if (block_.b != nullptr) {
      t_.b = block_.b + begin * block_.klen;
      // MicroPanels and blocks of k lie one behind the other.
      next_ = job_.order ? nullptr : t_.b + width * block_.klen;
      if (block_.a != nullptr) {
        // Over all tiles of this one, evenly.
        if (next_ != nullptr) {
          fetch_[1] = Fetch(next_, 0, width * block_.klen / 16, 1, tiles_ * Turns());
        }
        return;
      }
      next_step_ = tiles_ < 3 ? width / tiles_ : 16;
      next_line_ = next_step_ * block_.klen;
      next_tiles_ = tiles_;
      return;
    }
    t_.b = b.data + block_.batch * b.batch_stride + block_.p * b.inner + j_ * b.outer;
    t_.ldb = b.inner;
    next_ = job_.order || last_ ? nullptr : t_.b + width * b.outer;
    if (last_ && block_.more) {
      next_ = t_.b + block_.klen * b.inner - (begin - range_.panels.begin(range_.s0)) * b.outer;
    }
    // Of every 16 floats the last: where rows do not begin a line, this panel has fetched the line
    // that the next one begins in, and a panel touches one line more than it has (Sapphire Rapids,
    // 37 × 20011 × 89: 87 → 103 GF/s).
    if (next_ != nullptr) next_ += 15;
    next_line_ = 16, next_step_ = b.inner, next_tiles_ = 1;
  }

  void Compute(int64_t tile) {
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
      // Most of the traffic is c's: what the next tile writes (Zen 5, 2048² of k = 16: 5 % faster;
      // no gain with longer k, nor along rows of tiles where c is near).
      t_.prefetch = t_.c + count * t_.ldc;
      t_.prefetch_step = t_.ldc;
      MicroKernelFor<false, 3>(count, vectors_)(t_);
      return;
    }
    if (next_floats_.floats > 0 || NextFloats()) {
      t_.prefetch = next_floats_.data;
      t_.prefetch_step = next_step_of_blocks_;
      next_floats_.data += next_step_of_blocks_ * t_.k;
      next_floats_.floats -= next_step_of_blocks_ * t_.k;
      (next_step_of_blocks_ == 16 ? MicroKernelFor<false, 1>
                                  : MicroKernelFor<false, 3>)(count, vectors_)(t_);
      return;
    }
    t_.prefetch = t_.a;
    t_.prefetch_step = 0;
    if (last_ && a_in_a_row_) PrefetchNextRows(count);
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

  bool NextFloats() {
    while (floats_ < 2) {
      next_floats_ = block_.next_block[floats_++];
      if (next_floats_.floats > 0) return true;
    }
    return false;
  }

  const Job& job_;
  const PanelRange& range_;
  const Block& block_;
  int64_t tile_rows_ = 0, tiles_ = 0;
  Shares rows_{0, 1};
  MicroKernelArgs t_;
  Fetch fetch_[2];  // of a, of b
  // Of the block's first row, and column 0.
  float* c_;
  const float* c0_;
  const float* a_;
  int64_t a_row_;
  bool a_in_a_row_ = false;
  bool a_along_m_ = false;
  int64_t j_ = 0, vectors_ = 0;
  bool last_ = false;
  const float* next_ = nullptr;
  int64_t next_line_ = 0, next_step_ = 0, next_tiles_ = 0;
  Floats next_floats_;
  int floats_ = 0;
  int64_t next_step_of_blocks_;  // a line a step of k where all tiles together then fetch enough,
                                 // or three
};

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
