// The dot-product path of the hwy GEMM, for the ISA target being compiled: a skinny dimension, the
// long operand contiguous along k and read once, in place, at memory's speed; vectors run along k.
// If it is contiguous across k: hwy_outer-inl.h.
#if defined(ROOFLANE_GEMM_HWY_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_DOT_INL_H_
#undef ROOFLANE_GEMM_HWY_DOT_INL_H_
#else
#define ROOFLANE_GEMM_HWY_DOT_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// c(f,w) = alpha · Σ_p skinny(f,p)·longer(w,p) + beta · c0(f,w); both contiguous along k.
struct DotArgs {
  const float* skinny;
  std::int64_t skinny_ld;
  const float* longer;
  std::int64_t long_ld;
  std::int64_t k;
  const float* c0;
  std::int64_t c0_skinny, c0_long;
  float* c;
  std::int64_t c_skinny, c_long;
  float alpha, beta;
};

template <int kSkinny, int kLong>
class Dot {
 public:
  static void Compute(const DotArgs& t) {
    const DF d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    VF acc[kCount];
    Zero(acc);
    std::int64_t p = 0;
    if constexpr (kCount <= 4) {
      // Too few sums to hide the latency of an FMA: even and odd vectors apart.
      VF odd[kCount];
      Zero(odd);
      for (; p + 2 * lanes <= t.k; p += 2 * lanes) {
        Step(acc, t, p, Whole());
        Step(odd, t, p + lanes, Whole());
      }
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) acc[i] = hn::Add(acc[i], odd[i]);
    }
    for (; p + lanes <= t.k; p += lanes) Step(acc, t, p, Whole());
    if (p < t.k) Step(acc, t, p, Part(d, static_cast<std::size_t>(t.k - p)));
    Write(acc, t);
  }

  static constexpr int kCount = kSkinny * kLong;
  static HWY_INLINE void Zero(VF (&acc)[kCount]) {
#pragma GCC unroll 32
    for (int i = 0; i < kCount; ++i) acc[i] = hn::Zero(DF());
  }
  static HWY_INLINE void Write(const VF (&acc)[kCount], const DotArgs& args) {
    const DotArgs t = args;  // stores to c could be to args
#if HWY_TARGET != HWY_SCALAR
    if (t.c_long == 1 && (t.beta == 0 || t.c0_long == 1)) {
      WriteRuns<true>(acc, t, std::make_integer_sequence<int, Runs<true>::groups>());
      return;
    }
    if (kSkinny == 1 || (t.c_skinny == 1 && (t.beta == 0 || t.c0_skinny == 1))) {
      WriteRuns<false>(acc, t, std::make_integer_sequence<int, Runs<false>::groups>());
      return;
    }
#endif
    HWY_ALIGN float sums[(kCount + 3) / 4 * 4];
    Sum(acc, sums, std::make_integer_sequence<int, kCount / 4>(),
        std::make_integer_sequence<int, kCount % 4>());
    for (int i = 0; i < kCount; ++i) {
      const int m = i / kSkinny, f = i % kSkinny;
      const float v = t.alpha * sums[i];
      float& to = t.c[f * t.c_skinny + m * t.c_long];
      to = t.beta == 0 ? v : v + t.beta * t.c0[f * t.c0_skinny + m * t.c0_long];
    }
  }

 private:
  // A vector of each row: of the operand with fewer rows in registers, of the other one by one.
  template <class Loader>
  static HWY_INLINE void Step(VF (&acc)[kCount], const DotArgs& t, std::int64_t p,
                              const Loader& loader) {
    constexpr bool kFewSkinny = kSkinny < kLong;
    constexpr int kHeld = kFewSkinny ? kSkinny : kLong, kOthers = kFewSkinny ? kLong : kSkinny;
    const float* const held = (kFewSkinny ? t.skinny : t.longer) + p;
    const float* const others = (kFewSkinny ? t.longer : t.skinny) + p;
    const std::int64_t held_ld = kFewSkinny ? t.skinny_ld : t.long_ld;
    const std::int64_t others_ld = kFewSkinny ? t.long_ld : t.skinny_ld;
    VF rows[kHeld];
#pragma GCC unroll 16
    for (int i = 0; i < kHeld; ++i) {
      rows[i] = hc::InRegister<kOthers>(loader.Load(DF(), held + i * held_ld));
    }
#pragma GCC unroll 16
    for (int j = 0; j < kOthers; ++j) {
      const VF other = hc::InRegister<kHeld>(loader.Load(DF(), others + j * others_ld));
#pragma GCC unroll 16
      for (int i = 0; i < kHeld; ++i) {
        VF& sum = acc[kFewSkinny ? j * kSkinny + i : i * kSkinny + j];
        sum = hn::MulAdd(rows[i], other, sum);
      }
    }
  }
#if HWY_TARGET != HWY_SCALAR
  // Sums that are neighbours in c, of a row of the skinny operand or of one of the long operand,
  // four at once: of one run or, where they are shorter, of several.
  template <bool kAlongLong>
  struct Runs {
    static constexpr int length = kAlongLong ? kLong : kSkinny, count = kCount / length;
    static constexpr int at_once = length <= 2 ? 4 / length : 1, pieces = (length + 3) / 4;
    static constexpr int groups = (count + at_once - 1) / at_once * pieces;
  };
  template <bool kAlongLong, int... I>
  static HWY_INLINE void WriteRuns(const VF (&acc)[kCount], const DotArgs& t,
                                   std::integer_sequence<int, I...>) {
    (WriteGroup<kAlongLong, I>(acc, t), ...);
  }
  template <bool kAlongLong, int kGroup>
  static HWY_INLINE void WriteGroup(const VF (&acc)[kCount], const DotArgs& t) {
    using R = Runs<kAlongLong>;
    constexpr int run = kGroup / R::pieces * R::at_once, from = kGroup % R::pieces * 4;
    constexpr int runs = std::min(R::at_once, R::count - run), sums = std::min(4, R::length - from);
    // The index of the i-th sum; the last one again if there are fewer than four.
    constexpr auto index = [](int i) {
      const int j = std::min(i, runs * sums - 1), r = run + j / sums, e = from + j % sums;
      return kAlongLong ? e * kSkinny + r : r * kSkinny + e;
    };
    const auto v = hc::FourReduced(DF(), acc[index(0)], acc[index(1)], acc[index(2)], acc[index(3)],
                                   hc::Plus());
    WriteRun<kAlongLong, sums, 0>(v, t, run, from);
    if constexpr (runs > 1) WriteRun<kAlongLong, sums, 1>(v, t, run + 1, from);
    if constexpr (runs > 2) WriteRun<kAlongLong, sums, 2>(v, t, run + 2, from);
    if constexpr (runs > 3) WriteRun<kAlongLong, sums, 3>(v, t, run + 3, from);
  }
  template <bool kAlongLong, int kSums, int kPlace, class V>
  static HWY_INLINE void WriteRun(V v, const DotArgs& t, int run, int from) {
    Write<kSums, kPlace * kSums>(v, t, kAlongLong ? run : from, kAlongLong ? from : run);
  }
  // kSums sums, from lane kLane on: neighbours in c from row `skinny` of the skinny operand and row
  // `longer` of the long one on.
  template <int kSums, int kLane, class V>
  static HWY_INLINE void Write(V sums, const DotArgs& t, int skinny, int longer) {
    const hn::CappedTag<float, 4> d4;
    const hn::Half<decltype(d4)> d2;
    float* c = t.c + skinny * t.c_skinny + longer * t.c_long;
    const float* c0 = t.beta == 0 ? c : t.c0 + skinny * t.c0_skinny + longer * t.c0_long;
    const V v = hn::Mul(hn::Set(d4, t.alpha), sums);
    if constexpr (kSums == 4) {
      hn::StoreU(t.beta == 0 ? v : V(hn::MulAdd(hn::Set(d4, t.beta), hn::LoadU(d4, c0), v)), d4, c);
      return;
    }
    if constexpr (kSums >= 2) {
      auto two = kLane == 0 ? hn::LowerHalf(d2, v) : hn::UpperHalf(d2, v);
      if (t.beta != 0) two = hn::MulAdd(hn::Set(d2, t.beta), hn::LoadU(d2, c0), two);
      hn::StoreU(two, d2, c);
    }
    if constexpr (kSums % 2 == 1) {
      const float one = hn::ExtractLane(v, kLane + kSums - 1);
      c[kSums - 1] = t.beta == 0 ? one : one + t.beta * c0[kSums - 1];
    }
  }
#endif
  template <int... Q, int... Rest>
  static HWY_INLINE void Sum(const VF (&acc)[kCount], float* sums, std::integer_sequence<int, Q...>,
                             std::integer_sequence<int, Rest...>) {
    const DF d;
    (hc::ReduceFour(d, acc[4 * Q], acc[4 * Q + 1], acc[4 * Q + 2], acc[4 * Q + 3], hc::Plus(),
                    sums + 4 * Q),
     ...);
    ((sums[kCount / 4 * 4 + Rest] = hn::GetLane(hn::SumOfLanes(DF(), acc[kCount / 4 * 4 + Rest]))),
     ...);
  }
};

using DotFunction = void (*)(const DotArgs&);

// Most rows of the skinny operand in one tile of dot products; for each the most rows of the long
// one, so that the accumulators fill the register file as in the micro-tile, or 12, beyond which
// nothing is gained: their sums across lanes, four at a time, are amortised.
constexpr int kDotSkinny = 4;
constexpr int DotLong(int skinny) { return std::min(12, kMr * kNv / skinny); }

template <int kSkinny, std::size_t... M>
constexpr std::array<DotFunction, sizeof...(M)> MakeDots(std::index_sequence<M...>) {
  return {&Dot<kSkinny, static_cast<int>(M) + 1>::Compute...};
}
template <int kSkinny>
DotFunction DotOf(int64_t longer) {
  static constexpr auto dots = MakeDots<kSkinny>(std::make_index_sequence<DotLong(kSkinny)>());
  return dots[static_cast<std::size_t>(longer - 1)];
}
inline DotFunction DotFor(int64_t skinny, int64_t longer) {
  static constexpr std::array<DotFunction (*)(int64_t), kDotSkinny> of = {DotOf<1>, DotOf<2>,
                                                                          DotOf<3>, DotOf<4>};
  return of[static_cast<std::size_t>(skinny - 1)](longer);
}

// Rows of the long operand that are read at once: neighbours or, where job.order, so many rows
// apart that short ones too lie in different pages. A hardware prefetcher follows each page on its
// own, so where L3 latency is high a core that reads in one page at a time waits:
// common::PrefetchPages.
struct RowTile {
  int64_t first, count, apart;
};
class RowTiles {
 public:
  // Rows [begin,end), up to `most` in a tile: as long as whole blocks of `block` rows are left (0:
  // none), every block/most-th row of one; the rest are neighbours.
  RowTiles(int64_t begin, int64_t end, int64_t most, int64_t block)
      : begin_(begin),
        most_(most),
        apart_(block / most),
        spread_(apart_ == 0 ? 0 : (end - begin) / (apart_ * most) * apart_),
        neighbours_begin_(begin + spread_ * most),
        neighbour_tiles_((end - neighbours_begin_ + most - 1) / most),
        neighbours_(end - neighbours_begin_, std::max<int64_t>(neighbour_tiles_, 1)) {}
  int64_t count() const { return spread_ + neighbour_tiles_; }
  RowTile operator[](int64_t i) const {
    if (i < spread_) return {begin_ + i / apart_ * (apart_ * most_) + i % apart_, most_, apart_};
    return {neighbours_begin_ + neighbours_.begin(i - spread_), neighbours_.size(i - spread_), 1};
  }

 private:
  int64_t begin_, most_, apart_, spread_, neighbours_begin_;
  int64_t neighbour_tiles_;  // tiles of neighbours: none where no row is left
  Shares neighbours_;
};

// The epilogue of the sums of rows [begin,end) of the long operand: of few elements, in L1 or L2.
inline void FinishRows(const Job& job, int64_t batch, int64_t skinny_count, int64_t begin,
                       int64_t end) {
  if (job.transposed) {
    job.finish({batch, begin, 0, end - begin, skinny_count});
  } else {
    job.finish({batch, 0, begin, skinny_count, end - begin});
  }
}

// job.nc rows of the long operand, job.kc deep at a time: each of its rows is read once, in runs of
// kc floats; the skinny operand's block stays in L2.
inline void DotTask(const Job& job, const MatrixView& skinny, const MatrixView& longer,
                    int64_t skinny_count, int64_t long_count, int64_t task, float* scratch) {
  const Gemm& g = job.g;
  const int64_t parts = (long_count + job.nc - 1) / job.nc;
  const int64_t batch = task / parts;
  const int64_t w_begin = task % parts * job.nc;
  const int64_t w_end = std::min(long_count, w_begin + job.nc);
  const int64_t skinny_tiles = (skinny_count + kDotSkinny - 1) / kDotSkinny;
  const Shares members(skinny_count, skinny_tiles);
  const int64_t most = DotLong(static_cast<int>(members.size(0)));
  const int64_t long_tile = std::min(most, job.mr);
  // Blocks of the same size, so that few rows are left that are neighbours.
  const int64_t rows = w_end - w_begin, blocks = std::max<int64_t>(rows / spread_block, 1);
  const int64_t block = job.order ? rows / blocks / long_tile * long_tile : 0;
  const RowTiles tiles(w_begin, w_end, long_tile, block);
  DotArgs t;
  t.c_skinny = job.transposed ? 1 : job.c.ld;
  t.alpha = g.alpha;
  for (int64_t p = 0; p < g.k; p += job.kc) {
    t.k = std::min(job.kc, g.k - p);
    const float* skinny_data = skinny.f32() + batch * skinny.batch_stride + p * skinny.inner;
    t.skinny_ld = skinny.outer;
    if (skinny.inner != 1) {
      const PhaseTimer timer(log_beside(skinny_count * t.k * (w_end - w_begin)), RunPhase::pack);
      PackAlongK(skinny_data, skinny, skinny_count, t.k, scratch, t.k);
      skinny_data = scratch;
      t.skinny_ld = t.k;
    }
    const float* long_data = longer.f32() + batch * longer.batch_stride + p;
    for (int64_t mt = 0; mt < tiles.count(); ++mt) {
      const RowTile tile = tiles[mt];
      const int64_t w = tile.first, count = tile.count;
      t.longer = long_data + w * longer.outer;
      t.long_ld = tile.apart * longer.outer;
      t.c_long = tile.apart * (job.transposed ? job.c.ld : 1);
      for (int64_t ft = 0; ft < skinny_tiles; ++ft) {
        const int64_t f = members.begin(ft);
        const int64_t row = job.transposed ? w : f;
        const int64_t col = job.transposed ? f : w;
        const Start start = StartOf(job, p == 0, batch, row, col);
        t.skinny = skinny_data + f * t.skinny_ld;
        t.c = job.c.row(batch, row) + col;
        t.c0 = start.data;
        t.c0_skinny = job.transposed ? 1 : start.ld;
        t.c0_long = tile.apart * (job.transposed ? start.ld : 1);
        t.beta = start.beta;
        DotFor(members.size(ft), count)(t);
      }
    }
  }
  FinishRows(job, batch, skinny_count, w_begin, w_end);
}

// ---- the same with the skinny operand packed ---------------------------------------------------

// More rows of the skinny operand in one pass over the long one, which memory delivers once. What
// keeps it flowing:
// - The core runs out of loads in flight, not of multiply-adds. So the skinny operand is packed in
//   the order in which it is read, and a vector of it is loaded once for all rows at hand. (As an
//   operand in memory, which GCC prefers, it is loaded for each.)
// - Misses of L1 that L2 serves crowd out prefetches. So a chunk of the skinny operand stays in L1,
//   and sums stay vectors from chunk to chunk.
// - The run of a row that a chunk takes is prefetched into L2 some rows before its use. (Dead ends
//   on a Zen 5: prefetches in the order of memory, further rows from end to end, or into L1.)
constexpr int64_t kPrefetchBytes = 16 << 10;  // bytes: 250 lines, which memory delivers in 400 ns
constexpr int PackedDotRows(int skinny) { return std::min(4, kMr * kNv / skinny); }

struct PackedDotArgs {
  DotArgs dot;                 // skinny: a chunk of PackSkinny's; k: its depth
  const float* prefetch;       // rows to prefetch, long_ld apart as those of the long operand
  std::int64_t prefetch_step;  // by so many floats a step
  float* sums;                 // vectors of each row of both operands, kept between chunks
  bool first, last;            // chunks of k
};

template <int kSkinny, int kRows>
class PackedDot {
 public:
  static void Compute(const PackedDotArgs& t) {
    const DF d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    VF acc[kCount];
#pragma GCC unroll 32
    for (int i = 0; i < kCount; ++i) {
      acc[i] = t.first ? VF(hn::Zero(d)) : VF(hn::LoadU(d, t.sums + i * lanes));
    }
    Cursor at = {t.dot.skinny, t.dot.longer, t.prefetch};
    const std::int64_t ld = t.dot.long_ld;
    std::int64_t p = t.dot.k;
    for (; p >= lanes; p -= lanes) {
      Step(acc, at, ld, Whole());
      at.skinny += kSkinny * lanes;
      at.longer += lanes;
      at.prefetch += t.prefetch_step;
    }
    if (p > 0) Step(acc, at, ld, Part(d, static_cast<std::size_t>(p)));
    if (t.last) return Dot<kSkinny, kRows>::Write(acc, t.dot);
#pragma GCC unroll 32
    for (int i = 0; i < kCount; ++i) hn::StoreU(acc[i], d, t.sums + i * lanes);
  }

 private:
  static constexpr int kCount = kSkinny * kRows;
  struct Cursor {
    const float* HWY_RESTRICT skinny;
    const float* HWY_RESTRICT longer;
    const float* prefetch;
  };

  template <class Loader>
  static HWY_INLINE void Step(VF (&acc)[kCount], const Cursor& at, std::int64_t ld,
                              const Loader& loader) {
    VF longer[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      longer[r] = hc::InRegister<kSkinny>(loader.Load(DF(), at.longer + r * ld));
      __builtin_prefetch(at.prefetch + r * ld, 0, 2);
    }
#pragma GCC unroll 8
    for (int f = 0; f < kSkinny; ++f) {
      const std::int64_t place = f * static_cast<std::int64_t>(hn::Lanes(DF()));
      const VF skinny = hc::InRegister<kRows>(hn::LoadU(DF(), at.skinny + place));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[r * kSkinny + f] = hn::MulAdd(skinny, longer[r], acc[r * kSkinny + f]);
      }
    }
  }
};

using PackedDotFunction = void (*)(const PackedDotArgs&);

template <int kSkinny, std::size_t... R>
constexpr std::array<PackedDotFunction, 4> MakePackedDots(std::index_sequence<R...>) {
  return {&PackedDot<kSkinny, static_cast<int>(R) + 1>::Compute...};
}
template <int kSkinny>
PackedDotFunction PackedDotOf(int64_t rows) {
  static constexpr auto dots =
      MakePackedDots<kSkinny>(std::make_index_sequence<PackedDotRows(kSkinny)>());
  return dots[static_cast<std::size_t>(rows - 1)];
}
inline PackedDotFunction PackedDotFor(int64_t skinny, int64_t rows) {
  static constexpr std::array<PackedDotFunction (*)(int64_t), 7> of = {
      PackedDotOf<2>, PackedDotOf<3>, PackedDotOf<4>, PackedDotOf<5>,
      PackedDotOf<6>, PackedDotOf<7>, PackedDotOf<8>};
  return of[static_cast<std::size_t>(std::clamp<int64_t>(skinny, 2, 8) - 2)](rows);
}

// to[v][f][lane] = skinny(f, v·lanes + lane), zeros beyond k: vectors in the order PackedDot reads
// them.
inline void PackSkinny(const MatrixView& skinny, const float* from, int64_t count, int64_t k,
                       float* to) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t p = 0; p < k; p += lanes, to += count * lanes) {
    const int64_t depth = std::min(lanes, k - p);
    if (depth < lanes) std::fill_n(to, count * lanes, 0.0f);
    if (skinny.inner == 1) {
      PackRows(from + p, skinny.outer, count, depth, to, lanes);
    } else {
      PackTransposed(from + p * skinny.inner, skinny.inner, depth, count, to, lanes);
    }
  }
}
inline int64_t PackedRow(const Job& job) {  // floats of a packed row
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  return (job.g.k + lanes - 1) / lanes * lanes;
}
// Rows of the skinny operand in groups that registers hold, each packed on its own.
inline int64_t SkinnyGroups(int64_t skinny_count) { return pieces(skinny_count, dot_limit); }

// Rows [begin,end) of the long operand.
inline void PackedDotTask(const Job& job, const MatrixView& longer, int64_t skinny_count,
                          int64_t batch, int64_t begin, int64_t end, float* sums) {
  const Gemm& g = job.g;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const float* skinny = job.shared + batch * skinny_count * PackedRow(job);
  const float* data = longer.f32() + batch * longer.batch_stride;
  const int64_t groups = SkinnyGroups(skinny_count);
  const Shares members(skinny_count, groups);
  const int64_t rows = PackedDotRows(static_cast<int>(members.size(0)));
  const int64_t prefetch =
      (kPrefetchBytes / static_cast<int64_t>(sizeof(float)) / job.kc + rows - 1) / rows * rows;
  PackedDotArgs t = {};
  t.dot.c_skinny = t.dot.c0_skinny = job.transposed ? 1 : job.c.ld;
  t.dot.alpha = g.alpha;
  for (int64_t block = begin; block < end; block += packed_dot_block) {
    const int64_t block_end = std::min(end, block + packed_dot_block);
    const RowTiles tiles(block, block_end, rows, job.order ? packed_dot_block : 0);
    for (int64_t p = 0; p < g.k; p += job.kc) {
      t.first = p == 0;
      t.last = p + job.kc >= g.k;
      t.dot.k = std::min(job.kc, g.k - p);
      for (int64_t i = 0; i < tiles.count(); ++i) {
        const RowTile tile = tiles[i];
        const int64_t w = tile.first, count = tile.count;
        int64_t next = w + std::max(prefetch, rows), next_p = p;
        if (tile.apart != 1) {
          const int64_t further = i + std::clamp<int64_t>(prefetch / rows, 1, tile.apart);
          next = block + further + (further < tile.apart ? 0 : packed_dot_block - tile.apart);
        } else if (next >= block_end && !t.last) {
          next = std::min(block + next - block_end, block_end - 1);
          next_p = p + job.kc;
        } else if (next >= block_end) {
          next_p = 0;
        }
        const bool prefetches = next + (rows - 1) * tile.apart < end;
        const float* prefetch_of_all = prefetches ? data + next * longer.outer + next_p : data;
        t.dot.longer = data + w * longer.outer + p;
        t.dot.long_ld = tile.apart * longer.outer;
        t.dot.c_long = tile.apart * (job.transposed ? job.c.ld : 1);
        // Each group prefetches its share of the next rows: evenly, as the first alone would wait.
        t.prefetch_step = lanes / groups;
        for (int64_t group = 0; group < groups; ++group) {
          const int64_t f = members.begin(group), of_group = members.size(group);
          t.dot.skinny = skinny + f * PackedRow(job) + p * of_group;
          t.prefetch = prefetch_of_all + t.dot.k * group / groups;
          t.sums = sums + (i * rows * skinny_count + f * count) * lanes;
          const int64_t row = job.transposed ? w : f, col = job.transposed ? f : w;
          const Start start = StartOf(job, true, batch, row, col);
          t.dot.c = job.c.row(batch, row) + col;
          t.dot.c0 = start.data;
          t.dot.c0_skinny = job.transposed ? 1 : start.ld;
          t.dot.c0_long = tile.apart * (job.transposed ? start.ld : 1);
          t.dot.beta = start.beta;
          PackedDotFor(of_group, count)(t);
        }
      }
    }
    FinishRows(job, batch, skinny_count, block, block_end);
  }
}

inline void RunDot(const Job& job) {
  const int64_t skinny_count = job.transposed ? job.g.n : job.g.m;
  const int64_t long_count = job.transposed ? job.g.m : job.g.n;
  const MatrixView& skinny = job.transposed ? job.b : job.a;
  const MatrixView& longer = job.transposed ? job.a : job.b;
  const int64_t parts = (long_count + job.nc - 1) / job.nc;
  if (!job.pack_a) {
    run_tasks(job, job.g.batch * parts, [&](int64_t task, int thread) {
      DotTask(job, skinny, longer, skinny_count, long_count, task,
              job.scratch + thread * job.scratch_floats);
    });
    return;
  }
  const int64_t k_parts = (job.g.k + job.kc - 1) / job.kc;
  parallel_for(job.pool, job.threads, job.g.batch * k_parts, [&](int64_t task, int) {
    const PhaseTimer timer(log_beside(skinny_count * job.kc * long_count), RunPhase::pack);
    const int64_t batch = task / k_parts, p = task % k_parts * job.kc;
    const Shares members(skinny_count, SkinnyGroups(skinny_count));
    for (int64_t group = 0; group < SkinnyGroups(skinny_count); ++group) {
      const int64_t f = members.begin(group), count = members.size(group);
      PackSkinny(skinny,
                 skinny.f32() + batch * skinny.batch_stride + f * skinny.outer + p * skinny.inner,
                 count, std::min(job.kc, job.g.k - p),
                 job.shared + (batch * skinny_count + f) * PackedRow(job) + p * count);
    }
  });
  parallel_for_static(job.pool, job.threads, job.g.batch * parts, [&](int64_t task, int thread) {
    const int64_t begin = task % parts * job.nc;
    PackedDotTask(job, longer, skinny_count, task / parts, begin,
                  std::min(long_count, begin + job.nc), job.scratch + thread * job.scratch_floats);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
