// What attention's paths ask for before they need it, and in which order: prefill (prefill-inl.h)
// the rows that come next, decode (decode-inl.h) rows of K and V as the tunable `prefetch` says.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_ATTENTION_PREFETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_ATTENTION_PREFETCH_INL_H_
#undef ROOFLANE_KERNELS_ATTENTION_PREFETCH_INL_H_
#else
#define ROOFLANE_KERNELS_ATTENTION_PREFETCH_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/attention/hwy.hpp"
#include "kernels/attention/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

// Rows that come next, prefetched while products keep the core busy, so that memory works at the
// same time. Nothing is prefetched beyond the last row.
struct RowPrefetch {
  const float* data = nullptr;  // null: nothing
  std::int64_t stride = 0, last = 0;

  // Column `col`'s line of rows [first,first+count), every `step`-th.
  HWY_INLINE void Lines(std::int64_t first, std::int64_t count, std::int64_t step,
                        std::int64_t col) const {
    if (data == nullptr) return;
    const std::int64_t end = std::min(first + count, last + 1);
    for (; first < end; first += step) hwy::Prefetch(data + first * stride + col);
  }
};
inline constexpr std::int64_t kLine = 64 / sizeof(float);  // floats in a cache line

// Rows that are wanted when a task ends and the next begins, prefetched a few at a time all through
// the task: prefetched together just before their use they cost as much as not at all. Dead end:
// values of the next task's first tile, too.
class TaskPrefetch {
 public:
  // `rows` rows of `width` floats, beginning at the position of `walk`; `data` is row 0.
  void Add(const Heads& heads, const float* data, RowWalk walk, std::int64_t rows,
           std::int64_t width) {
    parts_[count_++] = {heads, data, walk, rows, width};
    rows_ += rows;
  }
  // Issue() will be called this often.
  void SpreadOver(std::int64_t calls) {
    quota_ = hwy::DivCeil(rows_, std::max<std::int64_t>(calls, 1));
  }

  HWY_INLINE void Issue() {
    for (std::int64_t n = 0; n < quota_ && at_ < count_; ++n) {
      Part& part = parts_[at_];
      const float* row = part.walk.of(part.heads, part.data);
      for (std::int64_t c = 0; c < part.width; c += kLine) hwy::Prefetch(row + c);
      part.walk.next();
      if (--part.rows == 0) ++at_;
    }
  }

 private:
  struct Part {
    Heads heads;
    const float* data;
    RowWalk walk;
    std::int64_t rows, width;
  };
  Part parts_[3];  // o, q, keys
  int count_ = 0, at_ = 0;
  std::int64_t rows_ = 0, quota_ = 0;
};

// How decode prefetches while it passes over the rows of a tile of K or V. A policy gives a cursor
// at row j and as many elements further on as were read before: Row(j) comes before the elements of
// row j are read, Next<kVectors>() before each so many vectors. LaterColumns() is what passes over
// further columns of the same rows use.
struct NoPrefetch {
  struct Cursor {
    HWY_INLINE void Row(std::int64_t) const {}
    template <int kVectors>
    HWY_INLINE void Next() const {}
  };
  HWY_INLINE Cursor From(std::int64_t, std::int64_t) const { return {}; }
  HWY_INLINE NoPrefetch LaterColumns() const { return {}; }
};

// Prefetch distance: a pass over a tile's rows of K or V prefetches into L1 the rows so many bytes
// further on; beyond the tile's end those that the next pass begins with. Without it products and
// memory alternate, as the 512 instructions of a reorder buffer are products of some 40 cache
// lines. A third of a 48 KiB L1, as the rows that are passed over again must stay there too.
inline constexpr std::int64_t kPrefetchBytes = 16 << 10;
inline constexpr std::int64_t kLongRow = 384;  // bytes

// A tile's rows, and those that are read after them.
struct TileRows {
  const float* now = nullptr;
  std::int64_t stride = 0, rows = 0;
  const float* next = nullptr;  // null: nothing beyond
  std::int64_t next_stride = 0;
  std::int64_t width = 0, distance = 0;  // distance in rows

  HWY_INLINE void PrefetchRow(const float* row) const {
    for (std::int64_t c = 0; c < width; c += kLine) hwy::Prefetch(row + c);
  }
};
// A whole row, a distance further on.
struct DistancePrefetch : TileRows {
  struct Cursor : NoPrefetch::Cursor {
    const TileRows& tile;
    HWY_INLINE explicit Cursor(const TileRows& of) : tile(of) {}
    HWY_INLINE void Row(std::int64_t j) const {
      j += tile.distance;
      if (j < tile.rows) {
        tile.PrefetchRow(tile.now + j * tile.stride);
      } else if (tile.next != nullptr) {
        tile.PrefetchRow(tile.next + (j - tile.rows) * tile.next_stride);
      }
    }
  };
  HWY_INLINE Cursor From(std::int64_t, std::int64_t) const { return Cursor(*this); }
  HWY_INLINE NoPrefetch LaterColumns() const { return {}; }
};
// The rows about to be read, a few whole ones at a time, so that lines are asked for in the order
// of memory, without which a Zen 4's hardware prefetcher follows little, and no more of them than
// its 24 L1 misses in flight. Dead ends there: the same lines 4 or more rows before their use; keys
// one after the other instead of four side by side; values of two rows and whole keys at a time.
struct AtUsePrefetch : TileRows {
  struct Cursor : NoPrefetch::Cursor {
    const TileRows& tile;
    HWY_INLINE explicit Cursor(const TileRows& of) : tile(of) {}
    HWY_INLINE void Row(std::int64_t j) const { tile.PrefetchRow(tile.now + j * tile.stride); }
  };
  HWY_INLINE Cursor From(std::int64_t, std::int64_t) const { return Cursor(*this); }
  HWY_INLINE NoPrefetch LaterColumns() const { return {}; }
};
// For rows of K and V without gaps: prefetches as many lines as are computed on, one after the
// other. A burst would lose lines, because a core drops prefetches that exceed its fill buffers,
// and another order would confuse the hardware prefetcher. Slower on a Zen 5: alternating lines of
// 4 rows.
struct LinearPrefetch : TileRows {
  struct Cursor {
    const float* at;
    HWY_INLINE void Row(std::int64_t) const {}
    template <int kVectors>
    HWY_INLINE void Next() {
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) hwy::Prefetch(at + n * LaneCount());
      at += kVectors * LaneCount();
    }
  };
  HWY_INLINE Cursor From(std::int64_t j, std::int64_t done) const {
    const std::int64_t to = j + distance;
    if (to < rows) return {now + to * stride + done};
    return {(next != nullptr ? next + (to - rows) * next_stride : now + j * stride) + done};
  }
  HWY_INLINE const LinearPrefetch& LaterColumns() const { return *this; }
};
// The same from four pages: the next four, alternating line by line, while four pages are computed
// on. Why: common::PrefetchPages. If a tile ends with fewer than four pages, as many of the next
// tile's first four are prefetched. Slower on a Sapphire Rapids: the four quarters of a tile side
// by side, not prefetched.
struct PagesPrefetch : TileRows {
  static constexpr std::int64_t kPage = 4096 / sizeof(float), kFour = 4 * kPage, kStep = 4 * kLine;
  struct Cursor {
    const TileRows& tile;
    std::int64_t at, prefetched;  // floats into the tile
    HWY_INLINE void Row(std::int64_t) const {}
    template <int kVectors>
    HWY_INLINE void Next() {
      at += kVectors * LaneCount();
      for (; prefetched < at; prefetched += kStep) {
        const float* from = tile.now;
        std::int64_t pages = (prefetched & -kFour) + kFour;
        if (pages >= tile.rows * tile.stride) {
          if (tile.next == nullptr) return;
          from = tile.next;
          pages = 0;
        }
        from += pages + (prefetched & (kFour - 1)) / 4;
#pragma GCC unroll 4
        for (int page = 0; page < 4; ++page) hwy::Prefetch(from + page * kPage);
      }
    }
  };
  HWY_INLINE Cursor From(std::int64_t j, std::int64_t done) const {
    const std::int64_t at = j * stride + done;
    return {*this, at, (at + kStep - 1) & -kStep};
  }
  HWY_INLINE const PagesPrefetch& LaterColumns() const { return *this; }
};

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
