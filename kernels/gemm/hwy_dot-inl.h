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
  std::int64_t skinny_ld;  // unless packed
  const float* longer;
  std::int64_t long_ld;
  std::int64_t k;
  const float* c0;
  std::int64_t c0_skinny, c0_long;
  float* c;
  std::int64_t c_skinny, c_long;
  float alpha, beta;
  // Packed: rows to prefetch, long_ld apart, a float for every 2^prefetch_shift of k; vectors of
  // each row of both operands, kept from one chunk of k to the next; whether this is the first or
  // the last chunk.
  const float* prefetch;
  int prefetch_shift;
  float* sums = nullptr;
  bool first, last;
};

// kPacked: `skinny` is a chunk of PackSkinny's. Many rows of it in one pass over the long operand,
// which memory delivers once. What keeps it flowing:
// - The core runs out of loads in flight, not of multiply-adds. So the skinny operand is packed in
//   the order in which it is read, and a vector of it is loaded once for all rows at hand. (As an
//   operand in memory, which GCC prefers, it is loaded for each.)
// - Misses of L1 that L2 serves crowd out prefetches. So a chunk of the skinny operand stays in L1,
//   and sums stay vectors from chunk to chunk.
// - The run of a row that a chunk takes is prefetched into L2 some rows before its use. (Dead ends
//   on a Zen 5: prefetches in the order of memory, further rows from end to end, or into L1.)
template <int kSkinny, int kLong, bool kPacked>
class Dot {
 public:
  static void Compute(const DotArgs& t) {
    const DF d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    VF acc[kCount];
#pragma GCC unroll 32
    for (int i = 0; i < kCount; ++i) {
      acc[i] = !kPacked || t.first ? VF(hn::Zero(d)) : VF(hn::LoadU(d, t.sums + i * lanes));
    }
    std::int64_t p = 0;
    if constexpr (!kPacked && kCount <= 4) {
      // Too few sums to hide the latency of an FMA: even and odd vectors apart.
      VF odd[kCount];
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) odd[i] = hn::Zero(d);
      for (; p + 2 * lanes <= t.k; p += 2 * lanes) {
        Step(acc, t, p, Whole());
        Step(odd, t, p + lanes, Whole());
      }
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) acc[i] = hn::Add(acc[i], odd[i]);
    }
    for (; p + lanes <= t.k; p += lanes) Step(acc, t, p, Whole());
    if (p < t.k) Step(acc, t, p, Part(d, static_cast<std::size_t>(t.k - p)));
    if (!kPacked || t.last) return Write(acc, t);
#pragma GCC unroll 32
    for (int i = 0; i < kCount; ++i) hn::StoreU(acc[i], d, t.sums + i * lanes);
  }

 private:
  static constexpr int kCount = kSkinny * kLong;
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

  // A vector of each row: of the operand with fewer rows in registers, of the other one by one.
  template <class Loader>
  static HWY_INLINE void Step(VF (&acc)[kCount], const DotArgs& t, std::int64_t p,
                              const Loader& loader) {
    constexpr bool kFewSkinny = kSkinny < kLong;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(DF()));
    const auto skinny = [&](int f) HWY_ATTR {
      const float* const from = t.skinny + p * (kPacked ? kSkinny : 1);
      return VF(loader.Load(DF(), from + f * (kPacked ? lanes : t.skinny_ld)));
    };
    const auto longer = [&](int r) HWY_ATTR {
      if constexpr (kPacked) {
        __builtin_prefetch(t.prefetch + (p >> t.prefetch_shift) + r * t.long_ld, 0, 2);
      }
      return VF(loader.Load(DF(), t.longer + p + r * t.long_ld));
    };
    constexpr int kHeld = kFewSkinny ? kSkinny : kLong, kOthers = kFewSkinny ? kLong : kSkinny;
    VF rows[kHeld];
#pragma GCC unroll 16
    for (int i = 0; i < kHeld; ++i) {
      rows[i] = hc::InRegister<kOthers>(kFewSkinny ? skinny(i) : longer(i));
    }
#pragma GCC unroll 16
    for (int j = 0; j < kOthers; ++j) {
      const VF other = hc::InRegister<kHeld>(kFewSkinny ? longer(j) : skinny(j));
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
// one, so that the accumulators fill the register file as in the micro-tile, or 12 (packed: 4),
// beyond which nothing is gained: their sums across lanes, four at a time, are amortised.
constexpr int DotSkinny(bool packed) { return packed ? dot_limit : 4; }
constexpr int kDotLong = 12;
constexpr int DotLong(bool packed, int skinny) {
  return std::min(packed ? 4 : kDotLong, kMr * kNv / skinny);
}
template <bool kPacked, int kSkinny, int kLong>
constexpr DotFunction DotOrNone() {
  if constexpr (kSkinny <= DotSkinny(kPacked) && kLong <= DotLong(kPacked, kSkinny)) {
    return &Dot<kSkinny, kLong, kPacked>::Compute;
  } else {
    return nullptr;
  }
}
template <bool kPacked, std::size_t... I>
constexpr std::array<DotFunction, sizeof...(I)> MakeDots(std::index_sequence<I...>) {
  return {DotOrNone<kPacked, static_cast<int>(I) / kDotLong + 1,
                    static_cast<int>(I) % kDotLong + 1>()...};
}
template <bool kPacked>
DotFunction DotFor(int64_t skinny, int64_t longer) {
  static constexpr auto dots =
      MakeDots<kPacked>(std::make_index_sequence<DotSkinny(kPacked) * kDotLong>());
  return dots[static_cast<std::size_t>((skinny - 1) * kDotLong + longer - 1)];
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

// to[v][f][lane] = skinny(f, v·lanes + lane), zeros beyond k: vectors in the order in which packed
// dot products read them.
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
  return round_up(job.g.k, static_cast<int64_t>(hn::Lanes(DF())));
}

// What packed dot products of `rows` rows from row w on prefetch: rows of this block, of the next
// chunk of k, or of the next block.
struct RowBlock {
  int64_t begin, end, last;  // `last`: the end of all blocks
};
inline const float* RowsAhead(const Job& job, const float* data, int64_t w, int64_t p, int64_t rows,
                              const RowBlock& block) {
  constexpr int64_t bytes = 16 << 10;  // 250 lines, which memory delivers in 400 ns
  int64_t next = w + std::max(rows, round_up(bytes / float_bytes / job.kc, rows));
  if (next >= block.end && p + job.kc < job.g.k) {
    next = std::min(block.begin + next - block.end, block.end - 1), p += job.kc;
  } else if (next >= block.end) {
    p = 0;
  }
  return next + rows <= block.last ? data + next * job.b.outer + p : data;
}

// Rows [begin,end) of the long operand, job.kc deep at a time: each of its rows is read once, in
// runs of kc floats. The skinny operand's block stays in L2 or, packed, in L1: then blocks of rows
// keep their sums as vectors in scratch.
inline void DotTask(const Job& job, int64_t batch, int64_t begin, int64_t end, float* scratch) {
  const MatrixView &skinny = job.a, &longer = job.b;
  const Gemm& g = job.g;
  const bool packed = job.pack_a;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int64_t groups = pieces(job.rows, DotSkinny(packed));
  const Shares members(job.rows, groups);
  const int64_t most = DotLong(packed, static_cast<int>(members.size(0)));
  const int64_t long_tile = packed ? most : std::min(most, job.mr);
  const int64_t spread = job.order ? rows_apart(end - begin, long_tile) * long_tile : 0;
  const int64_t block_rows = packed ? packed_dot_block : end - begin;
  const float* const data = longer.f32() + batch * longer.batch_stride;
  const auto dot_for = packed ? DotFor<true> : DotFor<false>;
  DotArgs t = {};
  t.c_skinny = job.transposed ? 1 : job.c.ld;
  t.alpha = g.alpha;
  t.prefetch_shift = groups > 1 ? 1 : 0;
  for (int64_t block = begin; block < end; block += block_rows) {
    const int64_t block_end = std::min(end, block + block_rows);
    const RowTiles tiles(block, block_end, long_tile, spread);
    for (int64_t p = 0; p < g.k; p += job.kc) {
      t.first = p == 0;
      t.last = p + job.kc >= g.k;
      t.k = std::min(job.kc, g.k - p);
      const float* skinny_data = skinny.f32() + batch * skinny.batch_stride + p * skinny.inner;
      t.skinny_ld = skinny.outer;
      if (packed) {
        skinny_data = job.shared + batch * job.rows * PackedRow(job);
      } else if (skinny.inner != 1) {
        const PhaseTimer timer(log_beside(job.rows * t.k * (end - begin)), RunPhase::pack);
        PackAlongK(skinny_data, skinny, job.rows, t.k, scratch, t.k);
        skinny_data = scratch;
        t.skinny_ld = t.k;
      }
      for (int64_t i = 0; i < tiles.count(); ++i) {
        const RowTile tile = tiles[i];
        const int64_t w = tile.first, count = tile.count;
        t.longer = data + w * longer.outer + p;
        t.long_ld = tile.apart * longer.outer;
        t.c_long = tile.apart * (job.transposed ? job.c.ld : 1);
        const float* const ahead =
            packed ? RowsAhead(job, data, w, p, long_tile, {block, block_end, end}) : data;
        for (int64_t group = 0; group < groups; ++group) {
          const int64_t f = members.begin(group), of_group = members.size(group);
          const int64_t row = job.transposed ? w : f, col = job.transposed ? f : w;
          const Start start = StartOf(job, packed || t.first, batch, row, col);
          t.skinny = skinny_data + (packed ? f * PackedRow(job) + p * of_group : f * t.skinny_ld);
          t.c = job.c.row(batch, row) + col;
          t.c0 = start.data;
          t.c0_skinny = job.transposed ? 1 : start.ld;
          t.c0_long = tile.apart * (job.transposed ? start.ld : 1);
          t.beta = start.beta;
          // Each group prefetches its share of the next rows: evenly, as the first alone would
          // wait.
          t.prefetch = ahead + (group > 0 ? t.k * group / groups : 0);
          // Without packing there is no scratch to point into.
          if (packed) t.sums = scratch + (i * long_tile * job.rows + f * count) * lanes;
          dot_for(of_group, count)(t);
        }
      }
    }
    // The sums are few, and still in L1 or L2.
    job.finish_formed({batch, 0, block, job.rows, block_end - block});
  }
}

inline void RunDot(const Job& job) {
  const int64_t parts = div_up(job.cols, job.nc);
  const auto task = [&](int64_t number, int thread) {
    const int64_t begin = number % parts * job.nc;
    DotTask(job, number / parts, begin, std::min(job.cols, begin + job.nc),
            job.scratch + thread * job.scratch_floats);
  };
  if (!job.pack_a) return run_tasks(job, job.g.batch * parts, task);
  const int64_t k_parts = div_up(job.g.k, job.kc), groups = pieces(job.rows, dot_limit);
  const MatrixView& skinny = job.a;
  parallel_for(job.pool, job.threads, job.g.batch * k_parts, [&](int64_t piece, int) {
    const PhaseTimer timer(log_beside(job.rows * job.kc * job.cols), RunPhase::pack);
    const int64_t batch = piece / k_parts, p = piece % k_parts * job.kc;
    const Shares members(job.rows, groups);
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t f = members.begin(group), count = members.size(group);
      PackSkinny(skinny,
                 skinny.f32() + batch * skinny.batch_stride + f * skinny.outer + p * skinny.inner,
                 count, std::min(job.kc, job.g.k - p),
                 job.shared + (batch * job.rows + f) * PackedRow(job) + p * count);
    }
  });
  parallel_for_static(job.pool, job.threads, job.g.batch * parts, task);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
