// Short, contiguous rows side by side in a vector: each in a slot of 1, 2, 4, 8 or 16 lanes, so
// that loads, stores and arithmetic are shared. As many vectors as a slot has lanes are reduced
// together, to one vector with a lane for each row. Rows wider than a vector are not for this. And
// the way of short rows, these or others, past the caches.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_SLOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_SLOTS_INL_H_
#undef ROOFLANE_KERNELS_COMMON_SLOTS_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_SLOTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/rows.hpp"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// In units of kUnit lanes: op(even, odd) of a's units in the even units, of b's in the odd ones. V
// is of float or double.
template <int kUnit, class V, class Op>
HWY_INLINE V MergedUnits(V a, V b, Op op) {
#if HWY_TARGET != HWY_SCALAR
  using D = hn::DFromV<V>;
  constexpr int bytes = kUnit * static_cast<int>(sizeof(hn::TFromV<V>));
  if constexpr (bytes == 4) {
    return op(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
  } else if constexpr (bytes == 8) {
    const hn::Repartition<double, D> pairs;
    const auto of_a = hn::BitCast(pairs, a), of_b = hn::BitCast(pairs, b);
    return op(hn::BitCast(D(), hn::OddEven(of_b, of_a)),
              hn::BitCast(D(), hn::Shuffle01(hn::OddEven(of_a, of_b))));
  } else if constexpr (bytes == 16) {
    return op(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
  } else {
    static_assert(bytes == 32);  // half of the widest vector
    return op(hn::ConcatUpperLower(D(), b, a), hn::ConcatLowerUpper(D(), b, a));
  }
#else
  return op(a, b);
#endif
}

// op over the lanes of each slot of kSlot vectors, each result once: lane u of a slot has that of
// v[u]. What follows is done for all these rows at a time.
template <int kSlot, class V, class Op>
HWY_INLINE V Gathered(const V* v, Op op) {
  if constexpr (kSlot == 1) {
    return v[0];
  } else {
    return MergedUnits<kSlot / 2>(Gathered<kSlot / 2>(v, op),
                                  Gathered<kSlot / 2>(v + kSlot / 2, op), op);
  }
}

// How rows of `cols` elements lie in slots of kSlot lanes, kSlot / 2 < cols <= kSlot. kFull: the
// rows fill their slots, and a vector is loaded and stored as it is.
template <int kSlot, bool kFull>
class Slots {
  using D = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<D>;
  using V = hn::Vec<D>;
  // A row has a vector of its own.
  static constexpr bool kWhole = kSlot == hn::MaxLanes(D());

 public:
  static constexpr int kLanes = kSlot;

  HWY_INLINE explicit Slots(std::size_t cols)
      : cols_(cols), spread_(hn::Zero(DI())), pack_(spread_), used_(hn::FirstN(D(), 0)) {
    constexpr std::size_t slot = kSlot;
    const std::size_t lanes = hn::Lanes(D());
    HWY_ALIGN std::int32_t spread[hn::MaxLanes(D())];
    HWY_ALIGN std::int32_t pack[hn::MaxLanes(D())];
    HWY_ALIGN float used[hn::MaxLanes(D())];
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t column = lane % slot;
      const bool holds = column < cols;
      spread[lane] = static_cast<std::int32_t>(lane / slot * cols + (holds ? column : 0));
      const std::size_t row = lane / cols;
      pack[lane] = static_cast<std::int32_t>(row < Rows() ? row * slot + lane % cols : 0);
      used[lane] = holds ? 1.0f : 0.0f;
    }
    spread_ = hn::Load(DI(), spread);
    pack_ = hn::Load(DI(), pack);
    used_ = hn::Ne(hn::Load(D(), used), hn::Zero(D()));
  }

  // Rows in a vector.
  static HWY_INLINE std::size_t Rows() { return hn::Lanes(D()) / static_cast<std::size_t>(kSlot); }

  // Rows() rows from x on, and `rest` in the lanes that no element fills.
  HWY_INLINE V Load(const float* x, V rest) const {
    if constexpr (kFull) return hn::LoadU(D(), x);
    const V packed = LoadRow(D(), x, Part{Rows() * cols_}, rest);
    if constexpr (kWhole) return packed;
    return hn::IfThenElse(used_, Shuffle(packed, spread_), rest);
  }
  HWY_INLINE void Store(V v, float* y) const {
    if constexpr (kFull) {
      hn::StoreU(v, D(), y);
    } else {
      StoreRow(Shuffle(v, pack_), D(), y, Part{Rows() * cols_});
    }
  }

  // p[0] to p[cols-1] in every slot, 0 in lanes that no element fills.
  HWY_INLINE V Repeat(const float* p) const {
    HWY_ALIGN float lanes[hn::MaxLanes(D())] = {};
    for (std::size_t lane = 0; lane < hn::Lanes(D()); ++lane) {
      const std::size_t column = lane % static_cast<std::size_t>(kSlot);
      if (column < cols_) lanes[lane] = p[column];
    }
    return hn::Load(D(), lanes);
  }

  // op over the lanes of each slot of kSlot vectors, gathered in one.
  template <class Op>
  static HWY_INLINE V Gather(const V (&v)[kSlot], Op op) {
    return Gathered<kSlot>(v, op);
  }
  // What each of those gave, in all lanes of its slots again.
  class Spread {
   public:
    HWY_INLINE explicit Spread(V gathered) : gathered_(gathered) {
      if constexpr (kWhole) hn::Store(gathered, D(), lanes_);
    }
    template <int kVector>
    HWY_INLINE V Of() const {
#if HWY_TARGET != HWY_SCALAR
      if constexpr (kWhole) return hn::Set(D(), lanes_[kVector]);
      if constexpr (kSlot == 2)
        return kVector == 1 ? hn::DupOdd(gathered_) : hn::DupEven(gathered_);
      if constexpr (kSlot == 4) return hn::Broadcast<kVector>(gathered_);
      if constexpr (kSlot == 8) {
        const V swapped = hn::SwapAdjacentBlocks(gathered_);
        return hn::Broadcast<kVector % 4>(kVector < 4 ? hn::OddEvenBlocks(swapped, gathered_)
                                                      : hn::OddEvenBlocks(gathered_, swapped));
      }
#endif
      return gathered_;
    }

   private:
    V gathered_;
    HWY_ALIGN float lanes_[kWhole ? kSlot : 1];
  };

  // Takes from kSlot vectors the means of their rows of `count` elements; 0 in the lanes that no
  // element fills. The mean of equal elements is exact.
  HWY_INLINE void Centre(V (&v)[kSlot], [[maybe_unused]] double count) const {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kSlot == 2) {
      // Half the distance from the other one; of halves, as that of the two may overflow.
      const V half = hn::Set(D(), 0.5f);
      for (V& x : v) x = hn::NegMulAdd(half, hn::Shuffle2301(x), hn::Mul(half, x));
      return;
    }
    if constexpr (kSlot > 2) {
      Subtract(v, MeansOf(v, count), std::make_integer_sequence<int, kSlot>());
      return;
    }
#endif
    v[0] = hn::Sub(v[0], v[0]);  // a row's only element
  }

  // body(first, x, next, y) for kSlot vectors of rows at a time, from `begin` to `end`; the last
  // ones, with zeros behind them, by way of memory of our own. `first` is the first vector at x,
  // lanes without an element `fill`; the body sets it to that of `next` before it writes to y: the
  // last vector of y ends where the next rows begin, and behind its store their load waits for it
  // where x and y lie at the same place of a page (Sapphire Rapids, 3 and 5 columns: 1.9 and 1.3
  // times as fast). Where the body returns false, having written nothing, the rows end; returns
  // how far they came.
  template <class Body>
  HWY_INLINE std::int64_t ForRows(const FloatRows& io, std::int64_t begin, std::int64_t end, V fill,
                                  const Body& body) const {
    const auto together = static_cast<std::int64_t>(kSlot * Rows());
    std::int64_t row = begin;
    V first = fill;
    if (row + together <= end) first = Load(io.x + row * io.x_stride, fill);
    for (; row + together <= end; row += together) {
      const float* at = io.x + row * io.x_stride;
      const bool more = row + 2 * together <= end;
      if (!body(first, at, more ? at + together * io.x_stride : at, io.y + row * io.y_stride)) {
        return row;
      }
    }
    if (row == end) return end;
    HWY_ALIGN float x[kSlot * hn::MaxLanes(D())] = {};
    HWY_ALIGN float y[kSlot * hn::MaxLanes(D())];
    const std::size_t left = static_cast<std::size_t>(end - row) * cols_;
    std::copy_n(io.x + row * io.x_stride, left, x);
    first = Load(x, fill);
    if (!body(first, x, x, y)) return row;
    std::copy_n(y, left, io.y + row * io.y_stride);
    return end;
  }

 private:
#if HWY_TARGET != HWY_SCALAR
  // The means of the `count` elements of each row of kSlot vectors, gathered: high + low, from sums
  // in double.
  struct Means {
    V high, low;
  };
  static HWY_INLINE Means MeansOf(const V (&x)[kSlot], double count) {
    const hn::ScalableTag<double> dd;
    const hn::Half<D> half;
    using Wide = hn::Vec<decltype(dd)>;
    const auto mean_of = [&](Wide sum) ROOFLANE_LAMBDA {
      const Wide share = hn::Set(dd, 1 / count);
      const Wide mean = hn::Mul(sum, share);
      // One step of Newton's division, which a power of two does not need.
      return kFull ? mean
                   : Wide(hn::MulAdd(hn::NegMulAdd(mean, hn::Set(dd, count), sum), share, mean));
    };
    Wide lower[kSlot], upper[kSlot];
    for (int i = 0; i < kSlot; ++i) {
      lower[i] = hn::PromoteTo(dd, hn::LowerHalf(half, x[i]));
      upper[i] = hn::PromoteTo(dd, hn::UpperHalf(half, x[i]));
      if constexpr (kWhole) lower[i] = hn::Add(lower[i], upper[i]);
    }
    // Either half of a gathered vector comes from that half of all vectors, or, where a row has a
    // vector of its own, from that half of the rows.
    constexpr int slot = kWhole ? kSlot / 2 : kSlot;
    const Wide low_mean = mean_of(Gathered<slot>(lower, Plus()));
    const Wide up_mean = mean_of(Gathered<slot>(kWhole ? lower + slot : upper, Plus()));
    const auto low_high = hn::DemoteTo(half, low_mean), up_high = hn::DemoteTo(half, up_mean);
    const auto rest = [&](Wide mean, auto high) ROOFLANE_LAMBDA {
      return hn::DemoteTo(half, hn::Sub(mean, hn::PromoteTo(dd, high)));
    };
    return {hn::Combine(D(), up_high, low_high),
            hn::Combine(D(), rest(up_mean, up_high), rest(low_mean, low_high))};
  }
  template <int... I>
  HWY_INLINE void Subtract(V (&v)[kSlot], const Means& mean,
                           std::integer_sequence<int, I...>) const {
    const Spread high(mean.high), low(mean.low);
    ((v[I] = hn::Sub(hn::Sub(v[I], high.template Of<I>()), low.template Of<I>())), ...);
    if constexpr (!kFull) ((v[I] = hn::IfThenElseZero(used_, v[I])), ...);
  }
#endif

  static HWY_INLINE V Shuffle(V v, hn::Vec<DI> from) {
    if constexpr (kFull || kWhole) return v;
    return hn::TableLookupLanes(v, hn::IndicesFromVec(D(), from));
  }

  std::size_t cols_;
  hn::Vec<DI> spread_, pack_;
  hn::Mask<D> used_;
};

// body(slots) with the Slots for rows of n elements, if x and y lie in a way that they serve: one
// row after the other, no wider than a vector. False: they do not.
template <class Body>
HWY_INLINE bool WithSlots(const FloatRows& io, std::size_t n, Body body) {
  const hn::ScalableTag<float> d;
  const auto cols = static_cast<std::int64_t>(n);
  if (io.x_stride != cols || io.y_stride != cols || n > hn::Lanes(d)) return false;
  constexpr std::size_t most = hn::MaxLanes(d);
  if constexpr (most >= 2) {
    if (n == 1) return body(Slots<1, true>(n)), true;
    if (n == 2) return body(Slots<2, true>(n)), true;
  }
  if constexpr (most >= 4) {
    if (n == 3) return body(Slots<4, false>(n)), true;
    if (n == 4) return body(Slots<4, true>(n)), true;
  }
  if constexpr (most >= 8) {
    if (n > 4 && n < 8) return body(Slots<8, false>(n)), true;
    if (n == 8) return body(Slots<8, true>(n)), true;
  }
  if constexpr (most >= 16) {
    if (n > 8 && n < 16) return body(Slots<16, false>(n)), true;
    if (n == 16) return body(Slots<16, true>(n)), true;
  }
  return false;
}

// Short rows, computed as float32 in L1: body(part, rows) computes a group of 16 rows or more. x is
// converted first unless it is plain float32; y is written from L1 in whole lines. With `stream` y
// goes past the caches, while the x of the next group is prefetched. Groups of 16 rows end where a
// line ends if y begins with one. n is at most 128. The body returns how many rows it wrote; if
// these are fewer, the loop ends. Returns how far it came.
template <class Io, class Body>
HWY_INLINE std::int64_t RowsByL1(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                                 bool stream, bool pages, Body body) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t room = 2048;  // 16 rows of 128
  HWY_ALIGN float results[room];
  HWY_ALIGN float converted[Io::is_plain ? 1 : room];
  const auto cols = static_cast<std::int64_t>(n);
  const auto together = static_cast<std::int64_t>((n <= 64 ? 1024 : 2048) / n / 16 * 16);
  const bool x_is_dense = io.x_stride == cols && !Io::is_summed;
  const bool y_is_dense = io.y_stride == cols && (x_is_dense || !Io::is_plain);
  const void* last = io.last_before(end, n);
  const auto convert = [&](std::int64_t row, std::size_t count, float* to) ROOFLANE_LAMBDA {
    const auto x = io.x_row(row);
    WriteElements<false>(d, to, count, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      return LoadElements(d, x + i, fill);
    });
  };
  const auto write = [&](std::int64_t row, std::size_t count, const float* from) ROOFLANE_LAMBDA {
    auto* y = io.y_row(row);
    const auto* x = io.x + row * io.x_stride;
    const auto asking = [&](auto policy) ROOFLANE_LAMBDA {
      WriteElements<true>(d, y, count, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        policy(x + i);
        return LoadElements(d, from + i, fill);
      });
    };
    if (!kStreams || !stream) {
      WriteElements<false>(d, y, count, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        return LoadElements(d, from + i, fill);
      });
    } else if (pages) {
      asking(PrefetchPages{last});
    } else {
      asking(PrefetchIntoL1{together * io.x_bytes(), last});
    }
  };
  for (std::int64_t row = begin; row < end; row += together) {
    const std::int64_t asked = std::min(together, end - row);
    FloatRows part;
    part.y = results;
    part.x_stride = part.y_stride = cols;
    if constexpr (Io::is_plain) {
      part = io;
      part.x += row * io.x_stride;
      part.y = results;
      part.y_stride = cols;
    } else {
      part.x = converted;
      if (x_is_dense) {
        convert(row, n * static_cast<std::size_t>(asked), converted);
      } else {
        for (std::int64_t i = 0; i < asked; ++i) convert(row + i, n, converted + i * cols);
      }
    }
    const std::int64_t rows = body(part, asked);
    if (y_is_dense) {
      if (rows > 0) write(row, n * static_cast<std::size_t>(rows), results);
    } else {
      for (std::int64_t i = 0; i < rows; ++i) write(row + i, n, results + i * cols);
    }
    if (rows < asked) {
      end = row + rows;
      break;
    }
  }
  if (stream) hwy::FlushStream();
  return end;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
