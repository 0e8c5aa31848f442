// Softmax of short rows, which stay in registers: several in each vector, or each in a few vectors.
// Longer ones: rows-inl.h.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_SOFTMAX_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_SOFTMAX_SHORT_INL_H_
#undef ROOFLANE_KERNELS_SOFTMAX_SHORT_INL_H_
#else
#define ROOFLANE_KERNELS_SOFTMAX_SHORT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/slots-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::softmax {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLowest = std::numeric_limits<float>::lowest();

// Rows side by side, as many vectors of them as I counts at a time.
template <class Slots, int... I>
HWY_INLINE void SlotRows(const common::FloatRows& io, std::int64_t begin, std::int64_t end,
                         std::size_t cols, const Slots& slots, std::integer_sequence<int, I...>) {
  const Tag d;
  const std::size_t step = Slots::Rows() * cols;
  const Vector lowest = hn::Set(d, -kInfinity);
  const auto group = [&](Vector& first, const float* x, const float* next,
                         float* y) ROOFLANE_LAMBDA {
    Vector v[] = {I == 0 ? first : slots.Load(x + I * step, lowest)...};
    first = slots.Load(next, lowest);
    const typename Slots::Spread max(hn::Max(Slots::Gather(v, hc::Most()), hn::Set(d, kLowest)));
    ((v[I] = hc::ExpNonPositive(d, hn::Sub(v[I], max.template Of<I>()))), ...);
    const typename Slots::Spread scale(hn::Div(hn::Set(d, 1.0f), Slots::Gather(v, hc::Plus())));
    (slots.Store(hn::Mul(v[I], scale.template Of<I>()), y + I * step), ...);
    return true;
  };
  slots.ForRows(io, begin, end, lowest, group);
}

// A row of so many vectors stays in registers, beside the row after it and the constants of exp.
inline constexpr int kRegisterVectors = HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 ? 8 : 4;
inline std::size_t MostInRegisters() { return kRegisterVectors * hn::Lanes(Tag()); }

// Rows of as many vectors as I counts, the last of them filled as `last` says: they stay in
// registers from the load to the store, and nothing but their own reductions across lanes keeps a
// core from working on several at once. kStream: y is written past the caches, and its rows are
// aligned to vectors. `policy` as in prefetch.hpp.
template <bool kStream, class Policy, class Last, int... I>
HWY_INLINE void RowsInRegisters(const common::FloatRows& io, std::int64_t begin, std::int64_t end,
                                Policy policy, Last last, std::integer_sequence<int, I...>) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr int kWhole = sizeof...(I) - 1;
  const Vector lowest = hn::Set(d, -kInfinity);
  const auto write = [=](Vector v, float* to, bool whole) ROOFLANE_LAMBDA {
    if (!whole) {
      hc::StoreRow(v, d, to, last);
    } else if constexpr (kStream) {
      hn::Stream(v, d, to);
    } else {
      hn::StoreU(v, d, to);
    }
  };
  Vector v[sizeof...(I)], next[sizeof...(I)];
  const auto load = [&](const float* x) ROOFLANE_LAMBDA {
    (policy(x + I * lanes), ...);
    ((next[I] = I < kWhole ? Vector(hn::LoadU(d, x + I * lanes))
                           : Vector(hc::LoadRow(d, x + I * lanes, last, lowest))),
     ...);
    Vector most = hn::Set(d, kLowest);
    ((most = hn::Max(next[I], most)), ...);
    return hn::MaxOfLanes(d, most);
  };
  Vector next_max = load(io.x + begin * io.x_stride);
  for (std::int64_t row = begin; row < end; ++row) {
    float* y = io.y + row * io.y_stride;
    const Vector max = next_max;
    ((v[I] = next[I]), ...);
    // The next row is loaded first: its reduction is done while exps are computed, and behind the
    // stores its loads wait for them where x and y lie at the same place of a page.
    if (row + 1 < end) next_max = load(io.x + (row + 1) * io.x_stride);
    ((v[I] = hc::ExpNonPositive(d, hn::Sub(v[I], max))), ...);
    Vector sum = v[0];
    ((sum = I == 0 ? sum : hn::Add(sum, v[I])), ...);
    const Vector scale = hn::Set(d, 1.0f / hc::SumLanes(d, sum));
    (write(hn::Mul(v[I], scale), y + I * lanes, std::is_same_v<Last, hc::Whole> || I < kWhole),
     ...);
  }
}

// Rows of at most kRegisterVectors vectors from `begin` to `end`.
template <bool kStream, class Policy, int kVectors = 1>
void RegisterRows(const common::FloatRows& io, std::int64_t begin, std::int64_t end, std::size_t n,
                  Policy policy) {
  const std::size_t lanes = hn::Lanes(Tag());
  if constexpr (kVectors < kRegisterVectors) {
    if (n > kVectors * lanes) {
      return RegisterRows<kStream, Policy, kVectors + 1>(io, begin, end, n, policy);
    }
  }
  const auto vectors = std::make_integer_sequence<int, kVectors>();
  if (n == kVectors * lanes) {
    RowsInRegisters<kStream>(io, begin, end, policy, hc::Whole(), vectors);
  } else {
    RowsInRegisters<kStream>(io, begin, end, policy, hc::Part{n - (kVectors - 1) * lanes}, vectors);
  }
}

// Rows of at most kRegisterVectors vectors from `begin` to `end`. Side by side, as many vectors are
// worked on as a slot has lanes, however few rows there are.
inline void FloatShortRows(const common::FloatRows& io, std::int64_t begin, std::int64_t end,
                           std::size_t n) {
  const bool few = end - begin < static_cast<std::int64_t>(n);
  const bool side_by_side = !few && hc::WithSlots(io, n, [&](const auto& slots) ROOFLANE_LAMBDA {
    constexpr int vectors = std::decay_t<decltype(slots)>::kLanes;
    SlotRows(io, begin, end, n, slots, std::make_integer_sequence<int, vectors>());
  });
  if (!side_by_side) RegisterRows<false>(io, begin, end, n, common::NoPrefetch());
}

// How many of so many rows of n elements, y one after the other, come before the first NaN.
inline std::int64_t RowsOfNumbers(const float* y, std::int64_t rows, std::size_t n) {
  const std::size_t count = static_cast<std::size_t>(rows) * n;
  const float* nan = std::find_if(y, y + count, [](float value) { return value != value; });
  return nan == y + count ? rows : (nan - y) / static_cast<std::int64_t>(n);
}

// Rows of at most kRegisterVectors vectors from `begin` to `end`, or up to one that may have left
// float32; returns how far.
template <class Io>
std::int64_t ShortRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                       bool stream, bool pages) {
  if constexpr (Io::is_plain && !hc::kStreams) {
    return FloatShortRows(io, begin, end, n), end;
  } else if constexpr (Io::is_plain) {
    const std::size_t lanes = hn::Lanes(Tag());
    const auto stride = static_cast<std::size_t>(io.y_stride);
    const bool aligned = reinterpret_cast<std::uintptr_t>(io.y) % (lanes * sizeof(float)) == 0 &&
                         stride % lanes == 0;
    if (!stream) return FloatShortRows(io, begin, end, n), end;
    if (n > lanes && aligned) {
      const void* last = io.last_before(end, n);
      constexpr std::int64_t distance = common::row_step * sizeof(float);
      pages ? RegisterRows<true>(io, begin, end, n, common::PrefetchPages{last})
            : RegisterRows<true>(io, begin, end, n, common::PrefetchIntoL1{distance, last});
      hwy::FlushStream();
      return end;
    }
  }
  return hc::RowsByL1(io, begin, end, n, stream, pages,
                      [=](const common::FloatRows& part, std::int64_t rows) HWY_ATTR {
                        FloatShortRows(part, 0, rows, n);
                        return Io::is_summed ? RowsOfNumbers(part.y, rows, n) : rows;
                      });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::softmax
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
