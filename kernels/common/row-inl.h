// Walks over one contiguous row of float32: writing every element once, plainly or past the caches,
// and summing in groups of vectors. The row kernels say what a vector's value is.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_ROW_INL_H_
#undef ROOFLANE_KERNELS_COMMON_ROW_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_ROW_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// The greatest e <= end at which y + e is aligned to a vector (0 when there is none), or `end`
// itself when it is the row's: pieces of a row that end there leave the next one aligned.
template <class D>
HWY_INLINE std::size_t AlignedEnd(D d, const float* y, std::size_t end, std::size_t n) {
  if (end >= n) return n;
  const std::size_t past =
      reinterpret_cast<std::uintptr_t>(y + end) / sizeof(float) % vectors::HWY_NAMESPACE::Lanes(d);
  return end > past ? end - past : 0;
}

// y = value(i, fill) for all i < n, where the value is a vector of elements from i on and fill is
// Whole, or Part at the ends of the row. It may be read from y at i itself. kStream: non-temporal
// stores, which spare the read of y that an ordinary store to uncached memory costs; call
// hwy::FlushStream() before others read y.
template <bool kStream, class D, class Value>
HWY_INLINE void WriteRow(D d, float* y, std::size_t n, Value value) {
  namespace hn = vectors::HWY_NAMESPACE;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  // Whole vectors start at aligned addresses: streaming demands it, and stores that straddle cache
  // lines cost more than the partial vector at the front once a row has 16 vectors.
  const std::size_t past = reinterpret_cast<std::uintptr_t>(y) / sizeof(float) % lanes;
  if (past != 0 && (kStream || n >= 16 * lanes)) {
    i = std::min(n, lanes - past);
    StoreRow(value(std::size_t{0}, Part{i}), d, y, Part{i});
  }
  const auto store = [&](auto v, std::size_t at) ROOFLANE_LAMBDA {
    if constexpr (kStream) {
      hn::Stream(v, d, y + at);
    } else {
      hn::StoreU(v, d, y + at);
    }
  };
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto v0 = value(i, Whole());
    const auto v1 = value(i + lanes, Whole());
    const auto v2 = value(i + 2 * lanes, Whole());
    const auto v3 = value(i + 3 * lanes, Whole());
    store(v0, i);
    store(v1, i + lanes);
    store(v2, i + 2 * lanes);
    store(v3, i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) store(value(i, Whole()), i);
  if (i < n) StoreRow(value(i, Part{n - i}), d, y + i, Part{n - i});
}

// The vector of y in which a streamed row ended, and its elements, which are not written yet.
template <class D>
struct StoreCarry {
  explicit StoreCarry(D d) : rest(vectors::HWY_NAMESPACE::Zero(d)) {}
  // Writes them. Call it after the last row.
  HWY_INLINE void Close(D d) {
    if (at != nullptr) StoreRow(rest, d, at, Part{count});
    at = nullptr;
  }

  float* at = nullptr;
  std::size_t count = 0;
  vectors::HWY_NAMESPACE::Vec<D> rest;
};

// WriteRow<true>, but where this row begins in the vector in which the one before ended, both are
// streamed as one: an ordinary store of either end waits for its line from memory, and all stores
// behind it wait as well (1.39 times the time in softmax of rows of 1009 on a Zen 5).
template <class D, class Value>
HWY_INLINE void StreamRow(D d, float* y, std::size_t n, StoreCarry<D>& carry, Value value) {
  namespace hn = vectors::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(y) / sizeof(float) % lanes;
  std::size_t i = 0;
  if (past != 0 && n >= lanes && carry.at == y - past && carry.count == past) {
    i = lanes - past;
    const auto head = value(std::size_t{0}, Part{i});
    const auto from = hn::And(hn::Sub(hn::Iota(di, 0), hn::Set(di, static_cast<int>(past))),
                              hn::Set(di, static_cast<int>(lanes - 1)));
    const auto shifted = hn::TableLookupLanes(head, hn::IndicesFromVec(d, from));
    hn::Stream(hn::IfThenElse(hn::FirstN(d, past), carry.rest, shifted), d, y - past);
    carry.at = nullptr;
  } else {
    carry.Close(d);
    if (past != 0) {
      i = std::min(n, lanes - past);
      StoreRow(value(std::size_t{0}, Part{i}), d, y, Part{i});
    }
  }
  const std::size_t whole = (n - i) / lanes * lanes;
  WriteRow<true>(d, y + i, whole,
                 [&](std::size_t at, auto fill) ROOFLANE_LAMBDA { return value(i + at, fill); });
  i += whole;
  if (i < n) {
    carry.rest = value(i, Part{n - i});
    carry.at = y + i;
    carry.count = n - i;
  }
}

// Dense rows of y from `to` on past the caches, by way of L1: some rows are written to Room(), at
// most kMost elements, and Written(their elements) streams what was written before them: loads of
// vectors that several stores have just made wait for these. Call Close() after the last ones.
template <class D, std::size_t kMost>
class StreamedByL1 {
 public:
  HWY_INLINE explicit StreamedByL1(float* to)
      : skip_(reinterpret_cast<std::uintptr_t>(to) / sizeof(float) % Lanes()),
        held_(skip_),
        to_(to - skip_) {}
  HWY_INLINE float* Room() {
    if (held_ + kMost > kRoom) {
      Stream();
      const D d;
      vectors::HWY_NAMESPACE::Store(vectors::HWY_NAMESPACE::Load(d, room_ + sent_), d, room_);
      to_ += sent_;
      held_ -= sent_;
      sent_ = 0;
    }
    return room_ + held_;
  }
  HWY_INLINE void Written(std::size_t count) {
    Stream();
    held_ += count;
  }
  HWY_INLINE void Close() {
    Stream();
    Write(sent_, held_);
  }

 private:
  static constexpr std::size_t kRoom = 1024 + kMost;  // floats; laps are few
  static HWY_INLINE std::size_t Lanes() { return vectors::HWY_NAMESPACE::Lanes(D()); }
  // The vectors that are whole and have not been sent.
  HWY_INLINE void Stream() {
    const D d;
    if (skip_ != 0 && held_ >= Lanes()) {
      Write(0, Lanes());
      sent_ = Lanes();
    }
    for (; sent_ + Lanes() <= held_; sent_ += Lanes()) {
      vectors::HWY_NAMESPACE::Stream(vectors::HWY_NAMESPACE::Load(d, room_ + sent_), d,
                                     to_ + sent_);
    }
  }
  // Less than a vector, or the first, of which the rows have a part.
  HWY_INLINE void Write(std::size_t begin, std::size_t end) {
    const D d;
    begin += skip_;
    StoreRow(vectors::HWY_NAMESPACE::LoadU(d, room_ + begin), d, to_ + begin, Part{end - begin});
    skip_ = 0;
  }

  HWY_ALIGN float
      room_[kRoom + vectors::HWY_NAMESPACE::MaxLanes(D())];  // the last load may read beyond
  std::size_t skip_;      // elements of the first vector that come before the rows
  std::size_t held_;      // elements in room_
  std::size_t sent_ = 0;  // those of them that are in y
  float* to_;             // where room_ begins
};

// y = value(i, fill) for all i < n, written past the caches, interleaved with other work. The
// constructor writes one or two vectors, which closes the carry of the row before; UpTo and
// EightUpTo write the rest. n = 0 stands for no row: nothing is written, and the carry stays.
template <class D, class Value>
class InterleavedStream {
 public:
  HWY_INLINE InterleavedStream(D /*d*/, float* y, std::size_t n, StoreCarry<D>& carry, Value value)
      : y_(y), n_(n), seam_(carry), value_(value) {
    UpTo(2 * vectors::HWY_NAMESPACE::Lanes(D()));
  }

  // Up to element `end` or a little before, where y is aligned.
  HWY_INLINE void UpTo(std::size_t end) {
    end = AlignedEnd(D(), y_, end, n_);
    if (end <= done_) return;
    StreamRow(D(), y_ + done_, end - done_, seam_,
              [this](std::size_t i, auto fill) ROOFLANE_LAMBDA { return value_(done_ + i, fill); });
    done_ = end;
  }

  // Eight more vectors, unless they lie beyond element `end` or the row: without the ends of a row,
  // which cost a third of the instructions of a step of softmax. With `end` what has been read of
  // another row, its loads never wait for these stores, which they would behind the same place of a
  // page (rows.hpp).
  HWY_INLINE void EightUpTo(std::size_t end) {
    namespace hn = vectors::HWY_NAMESPACE;
    const D d;
    const std::size_t lanes = hn::Lanes(d);
    if (done_ + 8 * lanes > std::min(end, n_)) return;
    for (int half = 0; half < 2; ++half, done_ += 4 * lanes) {
      const auto v0 = value_(done_, Whole());
      const auto v1 = value_(done_ + lanes, Whole());
      const auto v2 = value_(done_ + 2 * lanes, Whole());
      const auto v3 = value_(done_ + 3 * lanes, Whole());
      hn::Stream(v0, d, y_ + done_);
      hn::Stream(v1, d, y_ + done_ + lanes);
      hn::Stream(v2, d, y_ + done_ + 2 * lanes);
      hn::Stream(v3, d, y_ + done_ + 3 * lanes);
    }
  }

 private:
  float* y_;
  std::size_t n_, done_ = 0;
  StoreCarry<D>& seam_;
  Value value_;
};

// Adds value(i, fill) for all i < n into `sum`, with i and fill as above; lanes beyond a part must
// be 0. Eight vectors are added as a tree first, so that LongSum's four operations are shared by
// eight, and after_eight(elements so far) called.
template <class D, class Value, class AfterEight>
HWY_INLINE void SumRow(D d, LongSum<D>& sum, std::size_t n, Value value, AfterEight after_eight) {
  namespace hn = vectors::HWY_NAMESPACE;
  const std::size_t lanes = hn::Lanes(d);
  const auto four = [&](std::size_t at) ROOFLANE_LAMBDA {
    const auto v0 = value(at, Whole());
    const auto v1 = value(at + lanes, Whole());
    const auto v2 = value(at + 2 * lanes, Whole());
    const auto v3 = value(at + 3 * lanes, Whole());
    return hn::Add(hn::Add(v0, v1), hn::Add(v2, v3));
  };
  std::size_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    const auto low = four(i);
    sum.Add(hn::Add(low, four(i + 4 * lanes)));
    after_eight(i + 8 * lanes);
  }
  if (i + 4 * lanes <= n) {
    sum.Add(four(i));
    i += 4 * lanes;
  }
  for (; i + lanes <= n; i += lanes) sum.Add(value(i, Whole()));
  if (i < n) sum.Add(value(i, Part{n - i}));
}

// The same, and nothing else.
template <class D, class Value>
HWY_INLINE void SumRow(D d, LongSum<D>& sum, std::size_t n, Value value) {
  SumRow(d, sum, n, value, [](std::size_t) ROOFLANE_LAMBDA {});
}

// Sum and squared distances from a pivot of the elements of a row that stay in L1.
struct RowSums {
  double sum;   // of x in double: |error| <= n·2^-53·Σ|x|, exact where all are equal, n < 2^29
  float pivot;  // the mean of four elements
  double squares;  // Σ(x - pivot)²: relative error below (40 + n/2048)·u
};

// What gathers them, a vector of D at a time: 2 conversions, 2 additions of DD, 1 subtraction and 1
// multiply-add. The sum is one of doubles because a compensated sum of floats takes as many
// operations (tried: no faster on Zen 5, no fewer on Intel's two ports; 1.5 times the time on Zen
// 4). Zen adds and converts in the same units while those that multiply and add idle, so that some
// additions are multiply-adds by 1: that of the pivot (12 % on a Zen 5), or, `kSumByOnes`, those of
// doubles instead.
template <class D, class DD, bool kSumByOnes>
class RowSummer {
  using DF = vectors::HWY_NAMESPACE::Rebind<float, DD>;
  using V = vectors::HWY_NAMESPACE::Vec<D>;
  using VD = vectors::HWY_NAMESPACE::Vec<DD>;

 public:
  HWY_INLINE explicit RowSummer(float pivot)
      : centre_(vectors::HWY_NAMESPACE::Set(D(), pivot)),
        low_(vectors::HWY_NAMESPACE::Zero(DD())),
        high_(low_),
        squares_(vectors::HWY_NAMESPACE::Zero(D())),
        total_(squares_) {}

  HWY_INLINE void Add(const float* p) {
    namespace hn = vectors::HWY_NAMESPACE;
    const D d;
    low_ = Plus(low_, p);
    if (hn::Lanes(DD()) < hn::Lanes(d)) high_ = Plus(high_, p + hn::Lanes(DD()));  // else one lane
    V distance = hn::LoadU(d, p);
    if constexpr (HWY_TARGET <= HWY_AVX2 && !kSumByOnes) {
      distance = hn::MulSub(distance, hn::Set(d, 1.0f), centre_);
    } else {
      distance = hn::Sub(distance, centre_);
    }
    squares_ = hn::MulAdd(distance, distance, squares_);
  }

  // The last n < Lanes elements.
  HWY_INLINE void AddPart(const float* p, std::size_t n) {
    namespace hn = vectors::HWY_NAMESPACE;
    const V distance = hn::Sub(LoadRow(D(), p, Part{n}, centre_), centre_);
    squares_ = hn::MulAdd(distance, distance, squares_);
    const std::size_t half = hn::Lanes(DD());
    if (n >= half) {
      low_ = Plus(low_, p);
      p += half;
      n -= half;
    }
    if (n == 0) return;
    high_ = hn::Add(high_, hn::PromoteTo(DD(), LoadRow(DF(), p, Part{n})));
  }

  // Called at least every 64 additions, this keeps the squares' roundings from growing with the
  // row.
  HWY_INLINE void Settle() {
    total_ = vectors::HWY_NAMESPACE::Add(total_, squares_);
    squares_ = vectors::HWY_NAMESPACE::Zero(D());
  }

  HWY_INLINE void Join(const RowSummer& other) {
    namespace hn = vectors::HWY_NAMESPACE;
    low_ = hn::Add(low_, other.low_);
    high_ = hn::Add(high_, other.high_);
    squares_ = hn::Add(squares_, other.squares_);
    total_ = hn::Add(total_, other.total_);
  }

  HWY_INLINE RowSums Result() const {
    namespace hn = vectors::HWY_NAMESPACE;
    return {SumLanes(DD(), hn::Add(low_, high_)), hn::GetLane(centre_),
            static_cast<double>(SumLanes(D(), hn::Add(total_, squares_)))};
  }

 private:
  // The sum and a vector of elements from p on.
  static HWY_INLINE VD Plus(VD sum, const float* p) {
    namespace hn = vectors::HWY_NAMESPACE;
    const VD x = hn::PromoteTo(DD(), hn::LoadU(DF(), p));
    if constexpr (kSumByOnes) {
      return hn::MulAdd(x, hn::Set(DD(), 1.0), sum);
    } else {
      return hn::Add(sum, x);
    }
  }

  V centre_;
  VD low_, high_;
  V squares_, total_;
};

using WholeSummer = RowSummer<vectors::HWY_NAMESPACE::ScalableTag<float>,
                              vectors::HWY_NAMESPACE::ScalableTag<double>, false>;

#if HWY_TARGET <= HWY_AVX3
// The same for cores that take a vector of 512 bits as two halves (common::halves_vectors): a Zen 4
// converts two halves in three quarters of the time that the whole takes, and the sums, twice as
// many, hide the longer latency of multiply-adds. (Predicted and measured in L1: 3.2 cycles for 16
// elements where whole vectors take 4.7. The upper quarters out of a register instead of memory:
// 1.2 times the time.)
class HalvesSummer {
  using Half = vectors::HWY_NAMESPACE::Half<vectors::HWY_NAMESPACE::ScalableTag<float>>;
  static constexpr std::size_t kHalf = vectors::HWY_NAMESPACE::MaxLanes(Half());
  using Summer =
      RowSummer<Half, vectors::HWY_NAMESPACE::Half<vectors::HWY_NAMESPACE::ScalableTag<double>>,
                true>;

 public:
  HWY_INLINE explicit HalvesSummer(float pivot) : lower_(pivot), upper_(lower_) {}

  HWY_INLINE void Add(const float* p) {
    lower_.Add(p);
    upper_.Add(p + kHalf);
  }

  HWY_INLINE void AddPart(const float* p, std::size_t n) {
    if (n < kHalf) return lower_.AddPart(p, n);
    lower_.Add(p);
    if (n != kHalf) upper_.AddPart(p + kHalf, n - kHalf);
  }

  HWY_INLINE void Settle() {
    lower_.Settle();
    upper_.Settle();
  }

  HWY_INLINE void Join(const HalvesSummer& other) {
    lower_.Join(other.lower_);
    upper_.Join(other.upper_);
  }

  HWY_INLINE RowSums Result() {
    lower_.Join(upper_);
    return lower_.Result();
  }

 private:
  Summer lower_, upper_;
};

template <bool kHalves>
using SummerOf = std::conditional_t<kHalves, HalvesSummer, WholeSummer>;
#else
template <bool kHalves>
using SummerOf = WholeSummer;
#endif

// The mean of four of n > 0 elements. Not of the first few alone, which may be unlike the rest.
inline float PivotOf(const float* x, std::size_t n) {
  return (x[0] * 0.25f + x[n / 4] * 0.25f) + (x[n / 2] * 0.25f + x[n - 1] * 0.25f);
}

// A row's sums in the making: even vectors here, odd ones there, which hides the latencies. (Four
// summers a row were slower in rows of 768.)
template <class Summer>
struct RowVisit {
  Summer even, odd;
  HWY_INLINE RowVisit(const float* x, std::size_t n) : even(PivotOf(x, n)), odd(even) {}
  HWY_INLINE void AddTwo(const float* p, std::size_t lanes) {
    even.Add(p);
    odd.Add(p + lanes);
  }
  HWY_INLINE void Settle() {
    even.Settle();
    odd.Settle();
  }
  // The last n < 2·lanes elements.
  HWY_INLINE RowSums End(const float* p, std::size_t n, std::size_t lanes) {
    if (n >= lanes) {
      even.Add(p);
      p += lanes;
      n -= lanes;
    }
    if (n != 0) odd.AddPart(p, n);
    even.Join(odd);
    return even.Result();
  }
};

// One visit of n > 0 elements; `policy` as in prefetch.hpp. After every eight vectors, or fewer
// at the end, after_eight(elements so far) is called.
template <bool kHalves, class Policy, class AfterEight>
HWY_INLINE RowSums SumAndSquares(const float* x, std::size_t n, Policy policy,
                                 AfterEight after_eight) {
  const std::size_t lanes =
      vectors::HWY_NAMESPACE::Lanes(vectors::HWY_NAMESPACE::ScalableTag<float>());
  RowVisit<SummerOf<kHalves>> visit(x, n);
  std::size_t i = 0;
  while (i + 2 * lanes <= n) {
    const std::size_t settle = std::min(n, i + 64 * lanes);
    while (i + 2 * lanes <= settle) {
      for (const std::size_t stop = std::min(settle, i + 8 * lanes); i + 2 * lanes <= stop;
           i += 2 * lanes) {
        policy(x + i);
        policy(x + i + lanes);
        visit.AddTwo(x + i, lanes);
      }
      after_eight(i);
    }
    visit.Settle();
  }
  // The rest of the row too: each line that nobody asked for is waited for.
  for (std::size_t at = i; at < n; at += lanes) policy(x + at);
  return visit.End(x + i, n - i, lanes);
}

// The same, and nothing else.
template <bool kHalves, class Policy>
HWY_INLINE RowSums SumAndSquares(const float* x, std::size_t n, Policy policy) {
  return SumAndSquares<kHalves>(x, n, policy, [](std::size_t) ROOFLANE_LAMBDA {});
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
