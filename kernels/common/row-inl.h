// Walks over one contiguous row: what is summed where a residual, a scale or a mask goes with it,
// its elements written past the caches among other work, and sums in groups of vectors. The row
// kernels say what a vector's value is.

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
#include "kernels/common/elements-inl.h"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/rows.hpp"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// `policy` (prefetch.hpp) for two vectors of x, which lie in one line where elements are shorter
// than float32.
template <class Policy, class T>
HWY_INLINE void AskForTwo(Policy policy, const T* x, [[maybe_unused]] std::size_t lanes) {
  policy(x);
  if constexpr (sizeof(T) == sizeof(float)) policy(x + lanes);
}
template <class Policy, class T>
HWY_INLINE void AskForTwo(Policy policy, const SummedRow<T>& x, std::size_t lanes) {
  AskForTwo(policy, x.x + x.at, lanes);
}

// factor · x + added, rounded once. An infinity or a NaN where that leaves float32.
template <class D, class T, class Fill>
HWY_INLINE hn::Vec<D> LoadElements(D d, const SummedRow<T>& row, Fill fill) {
  const auto factor = hn::Set(d, row.factor);
  const auto x = LoadElements(d, row.x + row.at, fill);
  if (row.added == nullptr) return hn::Mul(factor, x);
  return hn::MulAdd(factor, x, LoadElements(d, row.added + row.at, fill));
}

// Whether y can be written past the caches. The emulation has no such store, and it and SSE4
// compute longer than memory takes: they are compiled without the loops that stream, or that
// prefetch by pages, which were more than half of SSE4's code.
inline constexpr bool kStreams = HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_SSE4;

// The greatest e <= end at which y + e is aligned to what is streamed at a time (0 when there is
// none), or `end` itself when it is the row's: pieces of a row that end there leave the next one
// aligned.
template <class D, class T>
HWY_INLINE std::size_t AlignedEnd(D /*d*/, const T* y, std::size_t end, std::size_t n) {
  if (end >= n) return n;
  const std::size_t past = PastAligned<D>(y + end);
  return end > past ? end - past : 0;
}

// y = value(i, fill) for all i < n, less than is streamed at a time.
template <class D, class T, class Value>
HWY_INLINE void WriteLessThanStreamed(D d, T* y, std::size_t n, Value value) {
  const std::size_t lanes = hn::Lanes(d);
  if constexpr (VectorsOfFloats<T>() == 2) {
    if (n >= lanes) {
      StoreElements(value(std::size_t{0}, Whole()), d, y, Whole());
      if (n > lanes) StoreElements(value(lanes, Part{n - lanes}), d, y + lanes, Part{n - lanes});
      return;
    }
  }
  StoreElements(value(std::size_t{0}, Part{n}), d, y, Part{n});
}

// The vector of y in which a streamed row ended: what the row has of it is not written yet. It is
// kept in memory, where the next row's beginning joins it.
template <class D, class T>
class StoreCarry {
 public:
  // Writes them. Call it after the last row.
  HWY_INLINE void Close() {
    if (at_ != nullptr) std::copy_n(kept_, count_, at_);
    at_ = nullptr;
  }
  // True when y begins behind them, in the same vector.
  HWY_INLINE bool Precedes(const T* y) const { return at_ != nullptr && at_ + count_ == y; }
  // Streams them together with value(i) for the rest of their vector; returns how many that were.
  template <class Value>
  HWY_INLINE std::size_t Complete(Value value) {
    const std::size_t rest = StreamedLanes<D, T>() - count_;
    WriteLessThanStreamed(D(), kept_ + count_, rest, value);
    if constexpr (std::is_same_v<T, float>) {
      hn::Stream(hn::Load(D(), kept_), D(), at_);
    } else {
#if HWY_TARGET != HWY_SCALAR
      const hn::ScalableTag<std::uint16_t> whole;
      hn::Stream(hn::Load(whole, reinterpret_cast<const std::uint16_t*>(kept_)), whole,
                 reinterpret_cast<std::uint16_t*>(at_));
#endif
    }
    at_ = nullptr;
    return rest;
  }
  // Keeps value(i) for the n elements from y on, less than a vector.
  template <class Value>
  HWY_INLINE void Keep(T* y, std::size_t n, Value value) {
    WriteLessThanStreamed(D(), kept_, n, value);
    at_ = y;
    count_ = n;
  }

 private:
  T* at_ = nullptr;  // where the first of them goes; null: there are none
  std::size_t count_ = 0;
  HWY_ALIGN T kept_[VectorsOfFloats<T>() * hn::MaxLanes(D())];
};

// WriteElements<true>, but where this row begins in the vector in which the one before ended, both
// are streamed as one: an ordinary store of either end waits for its line from memory, and all
// stores behind it wait as well (1.39 times the time in softmax of rows of 1009 on a Zen 5).
template <class D, class T, class Value>
HWY_INLINE void StreamRow(D d, T* y, std::size_t n, StoreCarry<D, T>& carry, Value value) {
  const std::size_t together = StreamedLanes<D, T>();
  const std::size_t past = PastAligned<D>(y);
  std::size_t i = 0;
  if (n >= together && carry.Precedes(y)) {
    i = carry.Complete(value);
  } else {
    carry.Close();
    if (past != 0) {
      i = std::min(n, together - past);
      WriteLessThanStreamed(d, y, i, value);
    }
  }
  const auto from = [&](std::size_t begin) ROOFLANE_LAMBDA {
    return [=](std::size_t at, auto fill) ROOFLANE_LAMBDA { return value(begin + at, fill); };
  };
  const std::size_t whole = (n - i) / together * together;
  WriteElements<true>(d, y + i, whole, from(i));
  i += whole;
  if (i < n) carry.Keep(y + i, n - i, from(i));
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
      hn::Store(hn::Load(d, room_ + sent_), d, room_);
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
  static HWY_INLINE std::size_t Lanes() { return hn::Lanes(D()); }
  // The vectors that are whole and have not been sent.
  HWY_INLINE void Stream() {
    const D d;
    if (skip_ != 0 && held_ >= Lanes()) {
      Write(0, Lanes());
      sent_ = Lanes();
    }
    for (; sent_ + Lanes() <= held_; sent_ += Lanes()) {
      hn::Stream(hn::Load(d, room_ + sent_), d, to_ + sent_);
    }
  }
  // Less than a vector, or the first vector, which belongs to the rows only in part.
  HWY_INLINE void Write(std::size_t begin, std::size_t end) {
    const D d;
    begin += skip_;
    StoreRow(hn::LoadU(d, room_ + begin), d, to_ + begin, Part{end - begin});
    skip_ = 0;
  }

  HWY_ALIGN float room_[kRoom + hn::MaxLanes(D())];  // the last load may read beyond
  std::size_t skip_;      // elements of the first vector that come before the rows
  std::size_t held_;      // elements in room_
  std::size_t sent_ = 0;  // those of them that are in y
  float* to_;             // where room_ begins
};

// y = value(i, fill) for all i < n, written past the caches, interleaved with other work. Start
// writes one or two vectors, which closes the carry of the row before; UpTo and EightUpTo write the
// rest. n = 0 stands for no row: nothing is written, and the carry stays. Calls, std::true_type:
// what Start and UpTo write is a function of its own, which is half of RMSNorm's code otherwise.
// (On a Zen 5 softmax of short rows was slower that way.)
template <class D, class T, class Value, class Calls>
class InterleavedStream {
 public:
  HWY_INLINE InterleavedStream(D /*d*/, T* y, std::size_t n, StoreCarry<D, T>& carry, Value value,
                               Calls /*calls*/)
      : y_(y), n_(n), carry_(carry), value_(value) {}

  HWY_INLINE void Start() { UpTo(2 * StreamedLanes<D, T>()); }

  // Up to element `end` or a little before, where y is aligned.
  HWY_INLINE void UpTo(std::size_t end) {
    end = AlignedEnd(D(), y_, end, n_);
    if (end <= done_) return;
    if constexpr (Calls::value) {
      const Value value = value_;  // a member's address would keep all of them in memory
      Write(y_, done_, end, carry_, value);
    } else {
      StreamRow(D(), y_ + done_, end - done_, carry_,
                [this](std::size_t i, auto fill)
                    ROOFLANE_LAMBDA { return value_(done_ + i, fill); });
    }
    done_ = end;
  }

  // Eight more vectors, unless they lie beyond element `end` or the row: without the ends of a row,
  // which cost a third of the instructions of a step of softmax. With `end` what has been read of
  // another row, its loads never wait for these stores, which they would behind the same place of a
  // page (rows.hpp).
  HWY_INLINE void EightUpTo(std::size_t end) {
    const D d;
    const std::size_t lanes = hn::Lanes(d);
    if (done_ + 8 * lanes > std::min(end, n_)) return;
    StoreVectors<true, 8>(d, y_, done_, value_);
    done_ += 8 * lanes;
  }

 private:
  static HWY_NOINLINE void Write(T* y, std::size_t begin, std::size_t end, StoreCarry<D, T>& carry,
                                 const Value& value) {
    StreamRow(D(), y + begin, end - begin, carry,
              [=](std::size_t i, auto fill) ROOFLANE_LAMBDA { return value(begin + i, fill); });
  }

  T* y_;
  std::size_t n_, done_ = 0;
  StoreCarry<D, T>& carry_;
  Value value_;
};

// Adds value(i, fill) for all i < n into `sum`, with i and fill as above; lanes beyond a part must
// be 0. Eight vectors are added as a tree first, so that LongSum's four operations are shared by
// eight, and after_eight(elements so far) called.
template <class D, class Value, class AfterEight>
HWY_INLINE void SumRow(D d, LongSum<D>& sum, std::size_t n, Value value, AfterEight after_eight) {
  const std::size_t lanes = hn::Lanes(d);
  const auto four = [&](std::size_t at) ROOFLANE_LAMBDA {
    if constexpr (requires { value.Four(at); }) return value.Four(at);
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

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
