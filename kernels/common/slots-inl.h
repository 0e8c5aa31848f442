// Several short, contiguous rows side by side in a vector: each in a slot of 1, 2, 4 or 8 lanes, so
// that loads, stores and arithmetic are shared and a reduction is a few shuffles that leave every
// lane of a slot with its row's result. Rows wider than half a vector are not for this. And the way
// of short rows, these or others, past the caches.

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

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/ahead.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/rows.hpp"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// op over the kSlot lanes of each slot, in all of them. V is of float or double.
template <int kSlot, class V, class Op>
HWY_INLINE V AcrossSlot(V v, Op op) {
#if HWY_TARGET != HWY_SCALAR
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr bool wide = sizeof(hn::TFromV<V>) == 8;
  if constexpr (kSlot >= 2) {
    if constexpr (wide) {
      v = op(v, hn::Shuffle01(v));
    } else {
      v = op(v, hn::Shuffle2301(v));
    }
  }
  if constexpr (kSlot >= 4) {
    if constexpr (wide) {
      v = op(v, hn::SwapAdjacentBlocks(v));
    } else {
      v = op(v, hn::Shuffle1032(v));
    }
  }
  if constexpr (kSlot >= 8) {
    if constexpr (wide) {
      v = op(v, hn::ConcatLowerUpper(hn::DFromV<V>(), v, v));
    } else {
      v = op(v, hn::SwapAdjacentBlocks(v));
    }
  }
#endif
  return v;
}

// How rows of `cols` elements lie in slots of kSlot lanes, kSlot / 2 < cols <= kSlot. kFull: the
// rows fill their slots, and a vector is loaded and stored as it is.
template <int kSlot, bool kFull>
class Slots {
  using D = hwy::HWY_NAMESPACE::ScalableTag<float>;
  using DI = hwy::HWY_NAMESPACE::RebindToSigned<D>;
  using V = hwy::HWY_NAMESPACE::Vec<D>;

 public:
  HWY_INLINE explicit Slots(std::size_t cols)
      : cols_(cols),
        spread_(hwy::HWY_NAMESPACE::Zero(DI())),
        pack_(spread_),
        used_(hwy::HWY_NAMESPACE::FirstN(D(), 0)) {
    namespace hn = hwy::HWY_NAMESPACE;
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
  static HWY_INLINE std::size_t Rows() {
    return hwy::HWY_NAMESPACE::Lanes(D()) / static_cast<std::size_t>(kSlot);
  }

  // Rows() rows from x on, and `rest` in the lanes that no element fills.
  HWY_INLINE V Load(const float* x, V rest) const {
    if constexpr (kFull) {
      return hwy::HWY_NAMESPACE::LoadU(D(), x);
    } else {
      return Load(x, Rows(), rest);
    }
  }
  // The same of `rows` rows, at most Rows(); the other slots hold anything.
  HWY_INLINE V Load(const float* x, std::size_t rows, V rest) const {
    const V packed = LoadRow(D(), x, Part{rows * cols_}, rest);
    return hwy::HWY_NAMESPACE::IfThenElse(used_, Shuffle(packed, spread_), rest);
  }

  HWY_INLINE void Store(V v, float* y) const {
    if constexpr (kFull) {
      hwy::HWY_NAMESPACE::StoreU(v, D(), y);
    } else {
      Store(v, y, Rows());
    }
  }
  HWY_INLINE void Store(V v, float* y, std::size_t rows) const {
    StoreRow(Shuffle(v, pack_), D(), y, Part{rows * cols_});
  }

  // p[0] to p[cols-1] in every slot, 0 in lanes that no element fills.
  HWY_INLINE V Repeat(const float* p) const {
    namespace hn = hwy::HWY_NAMESPACE;
    HWY_ALIGN float lanes[hn::MaxLanes(D())] = {};
    for (std::size_t lane = 0; lane < hn::Lanes(D()); ++lane) {
      const std::size_t column = lane % static_cast<std::size_t>(kSlot);
      if (column < cols_) lanes[lane] = p[column];
    }
    return hn::Load(D(), lanes);
  }

  // op over the lanes of each slot, in all of them.
  template <class Op>
  static HWY_INLINE V Across(V v, Op op) {
    return AcrossSlot<kSlot>(v, op);
  }

  // x - mean, the mean of the `count` elements that its slot holds; 0 in lanes that no element
  // fills, where x must be 0 too. In double, and the mean of equal elements is exact.
  HWY_INLINE V FromMean(V x, double count) const {
    namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_SCALAR
    return hn::Sub(x, x);  // a slot is the row's only element
#else
    const hn::ScalableTag<double> dd;
    const hn::Half<D> half;
    const auto distance = [&](auto part) ROOFLANE_LAMBDA {
      const auto wide = hn::PromoteTo(dd, part);
      const auto sum = AcrossSlot<kSlot>(wide, Plus());
      const auto share = hn::Set(dd, 1 / count);
      auto mean = hn::Mul(sum, share);
      // One step of Newton's division, which a power of two does not need.
      if (!kFull) {
        mean = hn::MulAdd(hn::NegMulAdd(mean, hn::Set(dd, count), sum), share, mean);
      }
      return hn::DemoteTo(half, hn::Sub(wide, mean));
    };
    const V centred =
        hn::Combine(D(), distance(hn::UpperHalf(half, x)), distance(hn::LowerHalf(half, x)));
    return kFull ? centred : hn::IfThenElseZero(used_, centred);
#endif
  }

 private:
  static HWY_INLINE V Shuffle(V v, hwy::HWY_NAMESPACE::Vec<DI> from) {
    namespace hn = hwy::HWY_NAMESPACE;
    if constexpr (kFull) return v;
    return hn::TableLookupLanes(v, hn::IndicesFromVec(D(), from));
  }

  std::size_t cols_;
  hwy::HWY_NAMESPACE::Vec<DI> spread_, pack_;
  hwy::HWY_NAMESPACE::Mask<D> used_;
};

// body(slots) with the Slots for rows of n elements, if x and y lie in a way that they serve: one
// row after the other, no wider than half a vector. False: they do not.
template <class Body>
HWY_INLINE bool WithSlots(const RowOperands& io, std::size_t n, Body body) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto cols = static_cast<std::int64_t>(n);
  if (io.x_stride != cols || io.y_stride != cols || 2 * n > hn::Lanes(d)) return false;
  constexpr std::size_t most = hn::MaxLanes(d) / 2;
  if constexpr (most >= 1) {
    if (n == 1) {
      body(Slots<1, true>(n));
      return true;
    }
  }
  if constexpr (most >= 2) {
    if (n == 2) {
      body(Slots<2, true>(n));
      return true;
    }
  }
  if constexpr (most >= 4) {
    if (n == 4) {
      body(Slots<4, true>(n));
      return true;
    }
    if (n == 3) {
      body(Slots<4, false>(n));
      return true;
    }
  }
  if constexpr (most >= 8) {
    if (n == 8) {
      body(Slots<8, true>(n));
      return true;
    }
    if (n > 4 && n < 8) {
      body(Slots<8, false>(n));
      return true;
    }
  }
  return false;
}

// The results of rows of n <= 64 elements past the caches: body(part, rows) writes a group of 16
// rows or more to memory that stays in L1, whence whole lines are streamed while the x of the
// next group is fetched. Groups of 16 rows end where a line ends if y begins with one.
template <class Io, class Body>
HWY_INLINE void StreamShortRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                                bool pages, Body body) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr std::size_t room = 1024;  // 16 rows of 64
  HWY_ALIGN float results[room];
  const auto cols = static_cast<std::int64_t>(n);
  const auto together = static_cast<std::int64_t>(room / n / 16 * 16);
  const float* last = last_of_rows(io, end, n);
  const auto write = [&](const float* from, float* y, std::size_t count, const float* x,
                         auto ahead) ROOFLANE_LAMBDA {
    WriteRow<true>(d, y, count, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      ahead(x + i);
      return LoadRow(d, from + i, fill);
    });
  };
  for (std::int64_t row = begin; row < end; row += together) {
    const std::int64_t rows = std::min(together, end - row);
    Io part = io;
    part.x += row * io.x_stride;
    part.y = results;
    part.y_stride = cols;
    body(part, rows);
    const bool dense = io.x_stride == cols && io.y_stride == cols;
    const std::int64_t pieces = dense ? 1 : rows;
    const std::size_t count = n * static_cast<std::size_t>(rows / pieces);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const float* from = results + piece * cols;
      float* y = io.y + (row + piece) * io.y_stride;
      const float* x = part.x + piece * io.x_stride;
      pages ? write(from, y, count, x, PagesAhead{last})
            : write(from, y, count, x, DistanceAhead{together * io.x_stride, last});
    }
  }
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
