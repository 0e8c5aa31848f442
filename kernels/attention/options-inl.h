// What softcap, mask and window make of a tile's scores before they become weights. Called once a
// tile, and only where an option asks for it, so that the loops that form scores (prefill-inl.h,
// decode-inl.h) know of none of them.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_ATTENTION_OPTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_ATTENTION_OPTIONS_INL_H_
#undef ROOFLANE_KERNELS_ATTENTION_OPTIONS_INL_H_
#else
#define ROOFLANE_KERNELS_ATTENTION_OPTIONS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/attention/hwy.hpp"
#include "kernels/attention/lanes-inl.h"
#include "kernels/common/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

// C·tanh(s / C) of the given scores, whole vectors.
HWY_NOINLINE inline void CapScores(const Job& job, std::int64_t count, float* HWY_RESTRICT s) {
  const D d;
  const V cap = hn::Set(d, static_cast<float>(job.s.softcap));
  const V inverse = hn::Set(d, static_cast<float>(1 / job.s.softcap));
  for (std::int64_t i = 0; i < count; i += LaneCount()) {
    const V capped = common::HWY_NAMESPACE::Tanh(d, hn::Mul(inverse, hn::Load(d, s + i)));
    hn::Store(hn::Mul(cap, capped), d, s + i);
  }
}

// Prefill: scores s [keys,rows], kNv vectors of rows. `mask` [keys,rows] is added, if there is one;
// what lies outside of keys [low,limit), which each row sees, becomes -inf; `top` [rows] becomes
// the maximum of itself and the scores.
template <int kNv>
HWY_NOINLINE void AdjustTile(std::int64_t keys, const float* HWY_RESTRICT mask,
                             const float* HWY_RESTRICT low, const float* HWY_RESTRICT limit,
                             float* HWY_RESTRICT s, float* HWY_RESTRICT top) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V most[kNv];
#pragma GCC unroll 3
  for (int v = 0; v < kNv; ++v) most[v] = hn::Load(d, top + v * lanes);
  for (std::int64_t j = 0; j < keys; ++j) {
    const V key = hn::Set(d, static_cast<float>(j));
#pragma GCC unroll 3
    for (int v = 0; v < kNv; ++v) {
      const std::int64_t at = (j * kNv + v) * lanes;
      V score = hn::Load(d, s + at);
      if (mask != nullptr) score = hn::Add(score, hn::Load(d, mask + at));
      const auto seen = hn::And(hn::Le(hn::Load(d, low + v * lanes), key),
                                hn::Lt(key, hn::Load(d, limit + v * lanes)));
      score = hn::IfThenElse(seen, score, hn::Set(d, kMinusInf));
      most[v] = hn::Max(most[v], score);
      hn::Store(score, d, s + at);
    }
  }
#pragma GCC unroll 3
  for (int v = 0; v < kNv; ++v) hn::Store(most[v], d, top + v * lanes);
}

// Decode: which keys of a tile the rows of a task see. If the keys of two rows end together, they
// also begin together.
struct SeenKeys {
  const Job& job;
  const VisibleKeys& visible;
  std::int64_t first_row, first_key, keys;  // of the tile

  std::int64_t first(std::int64_t r) const {
    if (job.s.window == 0) return 0;
    return std::clamp<std::int64_t>(visible.first_key(first_row + r) - first_key, 0, keys);
  }
  std::int64_t end(std::int64_t r) const {
    return std::clamp<std::int64_t>(visible.end_key(first_row + r) - first_key, 0, keys);
  }
};

// The scores s [keys] of row r likewise; those from seen.end(r) on are nobody's.
inline void AdjustRow(const SeenKeys& seen, std::int64_t r, float* HWY_RESTRICT s) {
  const D d;
  const std::int64_t lanes = LaneCount(), end = seen.end(r);
  if (seen.job.s.softcap != 0) CapScores(seen.job, end, s);
  const MaskRows& mask = seen.job.in.mask;
  if (mask.data != nullptr) {
    const float* add = mask.row((seen.first_row + r) / seen.job.group) + seen.first_key;
    std::int64_t j = 0;
    for (; j + lanes <= end; j += lanes) {
      hn::Store(hn::Add(hn::Load(d, s + j), hn::LoadU(d, add + j)), d, s + j);
    }
    for (; j < end; ++j) s[j] += add[j];
  }
  std::fill_n(s, std::min(seen.first(r), end), kMinusInf);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
