// Several short, contiguous rows side by side in a vector: each in a slot of 1, 2, 4 or 8 lanes, so
// that loads, stores and arithmetic are shared and a reduction is a few shuffles that leave every
// lane of a slot with its row's result. Rows wider than half a vector are not for this.

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

#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
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

  // Those of the elements that count, 0 elsewhere.
  HWY_INLINE V Used(V v) const { return kFull ? v : hwy::HWY_NAMESPACE::IfThenElseZero(used_, v); }

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

// body(slots) with the Slots for rows of `cols` elements, if x and y lie in a way that they serve:
// one row after the other, no wider than half a vector. False: they do not.
template <class Body>
HWY_INLINE bool WithSlots(const RowOperands& io, std::int64_t cols, Body body) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto n = static_cast<std::size_t>(cols);
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

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
