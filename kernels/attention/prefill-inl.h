// Attention for many rows: online softmax over tiles, vectors along the rows (queries). K and V are
// read where they lie, one broadcast element at a time, so that nothing of them is packed and any
// head_dim fits; only a panel of Q is transposed. Few rows: decode-inl.h.
//
// A panel is up to 3 vectors of rows. For each tile of kv_block keys:
//   S[j,rows]  = K[j,:]·Qᵀ[:,rows]            ScoreTile: nr keys × nv vectors in registers
//   P          = exp(S - m), l, alpha         Soften: every lane is a row, no reductions
//   Oᵀ[c,rows] = alpha·Oᵀ + V[:,c]·P          ValueTile: nr columns × nv vectors in registers
// Qᵀ, S and Oᵀ stay in L1.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_ATTENTION_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_ATTENTION_PREFILL_INL_H_
#undef ROOFLANE_KERNELS_ATTENTION_PREFILL_INL_H_
#else
#define ROOFLANE_KERNELS_ATTENTION_PREFILL_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "kernels/attention/hwy.hpp"
#include "kernels/common/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// 3 vectors × nr accumulators, 3 loaded vectors and a broadcast: 28 of AVX-512's 32 registers with
// nr = 8 (24 accumulators hide 2 FMA ports × 4 cycles three times over), all 16 elsewhere with 4.
inline constexpr int kPanelVectors = 3;
inline constexpr int kTile = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
inline constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

inline std::int64_t LaneCount() { return static_cast<std::int64_t>(hn::Lanes(D())); }

// S[j+r,rows] for kNr keys of K, masked where a row sees fewer than j+r+1 keys of this tile; `top`
// becomes the maximum of itself and the scores.
template <int kNv, int kNr, bool kMasked>
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT qt, const float* HWY_RESTRICT k,
                          std::int64_t k_stride, std::int64_t head_dim, std::int64_t j,
                          const float* HWY_RESTRICT limit, float* HWY_RESTRICT s,
                          float* HWY_RESTRICT top) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V acc[kNr][kNv];
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kNv; ++v) acc[r][v] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < head_dim; ++i) {
    V q[kNv];
#pragma GCC unroll 3
    for (int v = 0; v < kNv; ++v) q[v] = hn::Load(d, qt + v * lanes);
    qt += kNv * lanes;
#pragma GCC unroll 8
    for (int r = 0; r < kNr; ++r) {
      const V key = hn::Set(d, k[r * k_stride + i]);
#pragma GCC unroll 3
      for (int v = 0; v < kNv; ++v) acc[r][v] = hn::MulAdd(q[v], key, acc[r][v]);
    }
  }
#pragma GCC unroll 3
  for (int v = 0; v < kNv; ++v) {
    V most = hn::Load(d, top + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kNr; ++r) {
      V score = acc[r][v];
      if constexpr (kMasked) {
        const auto seen =
            hn::Lt(hn::Set(d, static_cast<float>(j + r)), hn::Load(d, limit + v * lanes));
        score = hn::IfThenElse(seen, score, hn::Set(d, kMinusInf));
      }
      most = hn::Max(most, score);
      hn::Store(score, d, s + (r * kNv + v) * lanes);
    }
    hn::Store(most, d, top + v * lanes);
  }
}

// Scores [keys,rows] become weights exp(s - top); m, l are brought up to date, and alpha is what
// all sums over earlier tiles must be multiplied by.
template <int kNv>
HWY_INLINE void Soften(std::int64_t keys, const float* HWY_RESTRICT top, float* HWY_RESTRICT s,
                       float* HWY_RESTRICT m, float* HWY_RESTRICT l, float* HWY_RESTRICT alpha) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V base[kNv], sum[kNv];
#pragma GCC unroll 3
  for (int v = 0; v < kNv; ++v) {
    const V most = hn::Load(d, top + v * lanes);
    // While all scores are -inf, weights are exp(-inf - 0) = 0, not exp(-inf + inf) = NaN.
    base[v] = hn::IfThenZeroElse(hn::Eq(most, hn::Set(d, kMinusInf)), most);
    const V old = hn::Load(d, m + v * lanes);
    const V factor = common::HWY_NAMESPACE::ExpNonPositive(d, hn::Sub(old, base[v]));
    hn::Store(factor, d, alpha + v * lanes);
    hn::Store(most, d, m + v * lanes);
    sum[v] = hn::Mul(hn::Load(d, l + v * lanes), factor);
  }
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 3
    for (int v = 0; v < kNv; ++v) {
      const V score = hn::Load(d, s + v * lanes);
      const V weight = common::HWY_NAMESPACE::ExpNonPositive(d, hn::Sub(score, base[v]));
      sum[v] = hn::Add(sum[v], weight);
      hn::Store(weight, d, s + v * lanes);
    }
    s += kNv * lanes;
  }
#pragma GCC unroll 3
  for (int v = 0; v < kNv; ++v) hn::Store(sum[v], d, l + v * lanes);
}

// Oᵀ[c+r,rows] = alpha·Oᵀ + Σ_j V[j,c+r]·P[j,rows] for kNr columns; v points at column c. Keys from
// `common` on are not seen by every row: there lanes are selected, because 0·inf would be NaN.
template <int kNv, int kNr>
HWY_INLINE void ValueTile(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v,
                          std::int64_t v_stride, std::int64_t common, std::int64_t keys,
                          const float* HWY_RESTRICT limit, const float* HWY_RESTRICT alpha,
                          float* HWY_RESTRICT ot) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V acc[kNr][kNv];
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
#pragma GCC unroll 3
    for (int n = 0; n < kNv; ++n) {
      acc[r][n] = hn::Mul(hn::Load(d, alpha + n * lanes), hn::Load(d, ot + (r * kNv + n) * lanes));
    }
  }
  std::int64_t j = 0;
  for (; j < common; ++j) {
    V weight[kNv];
#pragma GCC unroll 3
    for (int n = 0; n < kNv; ++n) weight[n] = hn::Load(d, p + n * lanes);
    p += kNv * lanes;
#pragma GCC unroll 8
    for (int r = 0; r < kNr; ++r) {
      const V value = hn::Set(d, v[r]);
#pragma GCC unroll 3
      for (int n = 0; n < kNv; ++n) acc[r][n] = hn::MulAdd(weight[n], value, acc[r][n]);
    }
    v += v_stride;
  }
  for (; j < keys; ++j) {
    const V position = hn::Set(d, static_cast<float>(j));
#pragma GCC unroll 3
    for (int n = 0; n < kNv; ++n) {
      const V weight = hn::Load(d, p + n * lanes);
      const auto seen = hn::Lt(position, hn::Load(d, limit + n * lanes));
#pragma GCC unroll 8
      for (int r = 0; r < kNr; ++r) {
        const V next = hn::MulAdd(weight, hn::Set(d, v[r]), acc[r][n]);
        acc[r][n] = hn::IfThenElse(seen, next, acc[r][n]);
      }
    }
    p += kNv * lanes;
    v += v_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
#pragma GCC unroll 3
    for (int n = 0; n < kNv; ++n) hn::Store(acc[r][n], d, ot + (r * kNv + n) * lanes);
  }
}

// Rows that are transposed together, in 4×4 blocks in registers: loads and stores of single
// elements would cost as much as 3 % of the products at head_dim 64.
inline constexpr std::int64_t kTransposed = HWY_TARGET == HWY_SCALAR ? 1 : 4;

// to[c·width + r] = factor·from[r][c] for `count` rows, a multiple of kTransposed.
HWY_INLINE void TransposeIn(const float* const* from, std::int64_t count, std::int64_t cols,
                            float factor, std::int64_t width, float* HWY_RESTRICT to) {
  for (std::int64_t r = 0; r < count; r += kTransposed) {
    std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> d4;
    const auto scale = hn::Set(d4, factor);
    for (; c + 4 <= cols; c += 4) {
      const auto x0 = hn::Mul(scale, hn::LoadU(d4, from[r] + c));
      const auto x1 = hn::Mul(scale, hn::LoadU(d4, from[r + 1] + c));
      const auto x2 = hn::Mul(scale, hn::LoadU(d4, from[r + 2] + c));
      const auto x3 = hn::Mul(scale, hn::LoadU(d4, from[r + 3] + c));
      const auto low01 = hn::InterleaveLower(d4, x0, x1), low23 = hn::InterleaveLower(d4, x2, x3);
      const auto high01 = hn::InterleaveUpper(d4, x0, x1), high23 = hn::InterleaveUpper(d4, x2, x3);
      float* out = to + c * width + r;
      hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, out);
      hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, out + width);
      hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, out + 2 * width);
      hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, out + 3 * width);
    }
#endif
    for (; c < cols; ++c) {
      for (std::int64_t i = 0; i < kTransposed; ++i)
        to[c * width + r + i] = factor * from[r + i][c];
    }
  }
}

// to[r][c] = factor[r]·from[c·width + r] for `count` rows, a multiple of kTransposed.
HWY_INLINE void TransposeOut(const float* HWY_RESTRICT from, std::int64_t width, std::int64_t count,
                             std::int64_t cols, const float* HWY_RESTRICT factor,
                             float* const* to) {
  for (std::int64_t r = 0; r < count; r += kTransposed) {
    std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> d4;
    const auto scale = hn::LoadU(d4, factor + r);
    for (; c + 4 <= cols; c += 4) {
      const float* in = from + c * width + r;
      const auto x0 = hn::Mul(scale, hn::LoadU(d4, in));
      const auto x1 = hn::Mul(scale, hn::LoadU(d4, in + width));
      const auto x2 = hn::Mul(scale, hn::LoadU(d4, in + 2 * width));
      const auto x3 = hn::Mul(scale, hn::LoadU(d4, in + 3 * width));
      const auto low01 = hn::InterleaveLower(d4, x0, x1), low23 = hn::InterleaveLower(d4, x2, x3);
      const auto high01 = hn::InterleaveUpper(d4, x0, x1), high23 = hn::InterleaveUpper(d4, x2, x3);
      hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, to[r] + c);
      hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, to[r + 1] + c);
      hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, to[r + 2] + c);
      hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, to[r + 3] + c);
    }
#endif
    for (; c < cols; ++c) {
      for (std::int64_t i = 0; i < kTransposed; ++i)
        to[r + i][c] = factor[r + i] * from[c * width + r + i];
    }
  }
}

// Up to kPanelVectors vectors of rows with their sums. Lanes beyond the last row repeat it.
struct Panel {
  std::int64_t first_row, rows;
  int vectors;
  float *qt, *ot;     // [head_dim,width]
  float *m, *l;       // [width]
  std::int64_t most;  // keys that the last row, hence any row, sees

  std::int64_t width() const { return vectors * LaneCount(); }
};

// What all panels of a thread share.
struct TileScratch {
  float* s;                    // [kv_block,width]
  float *top, *alpha, *limit;  // [width]
  float* spare;                // [head_dim]: output of lanes beyond the last row
};

inline constexpr std::int64_t kMostLanes = 64;  // 2048-bit vectors, the longest that exist

// The panels of q_block rows, vectors spread evenly over them: 3 3 2 rather than 3 3 1 1.
inline std::int64_t PanelsOf(std::int64_t rows) {
  return hwy::DivCeil(hwy::DivCeil(rows, LaneCount()), std::int64_t{kPanelVectors});
}

// Floats of scratch that a thread needs; every part starts on a cache line.
inline std::int64_t PrefillScratch(const Job& job) {
  const std::int64_t width = kPanelVectors * LaneCount();
  const std::int64_t panel = 2 * job.s.head_dim * width + 2 * width;
  return PanelsOf(job.q_block) * panel + (job.kv_block + 3) * width + job.s.head_dim + 16;
}

template <int kNv, bool kMasked>
HWY_NOINLINE void AttendTile(const Job& job, const Panel& panel, const TileScratch& t,
                             const float* k, const float* v, std::int64_t common,
                             std::int64_t keys) {
  const std::int64_t head_dim = job.s.head_dim, width = panel.width();
  const std::int64_t k_stride = job.in.k.row_stride, v_stride = job.in.v.row_stride;
  std::copy_n(panel.m, width, t.top);

  std::int64_t j = 0;
  for (; j + kTile <= keys; j += kTile) {
    ScoreTile<kNv, kTile, kMasked>(panel.qt, k + j * k_stride, k_stride, head_dim, j, t.limit,
                                   t.s + j * width, t.top);
  }
  if (j < keys && keys >= kTile) {
    // The last full tile once more, shifted: what it repeats comes out the same.
    j = keys - kTile;
    ScoreTile<kNv, kTile, kMasked>(panel.qt, k + j * k_stride, k_stride, head_dim, j, t.limit,
                                   t.s + j * width, t.top);
    j = keys;
  }
  for (; j < keys; ++j) {
    ScoreTile<kNv, 1, kMasked>(panel.qt, k + j * k_stride, k_stride, head_dim, j, t.limit,
                               t.s + j * width, t.top);
  }

  Soften<kNv>(keys, t.top, t.s, panel.m, panel.l, t.alpha);

  std::int64_t c = 0;
  for (; c + kTile <= head_dim; c += kTile) {
    ValueTile<kNv, kTile>(t.s, v + c, v_stride, common, keys, t.limit, t.alpha,
                          panel.ot + c * width);
  }
  if (kTile > 4 && c + 4 <= head_dim) {
    ValueTile<kNv, 4>(t.s, v + c, v_stride, common, keys, t.limit, t.alpha, panel.ot + c * width);
    c += 4;
  }
  for (; c < head_dim; ++c) {
    ValueTile<kNv, 1>(t.s, v + c, v_stride, common, keys, t.limit, t.alpha, panel.ot + c * width);
  }
}

template <int kNv>
HWY_INLINE void AttendKeys(const Job& job, const Task& task, const Panel& panel,
                           const TileScratch& t, std::int64_t first, std::int64_t last) {
  const float* k = job.in.k.matrix(task.batch, task.kv_head) + first * job.in.k.row_stride;
  const float* v = job.in.v.matrix(task.batch, task.kv_head) + first * job.in.v.row_stride;
  const std::int64_t keys = std::min(last, panel.most) - first;
  if (keys <= 0) return;
  const std::int64_t common =
      std::clamp<std::int64_t>(job.visible(panel.first_row) - first, 0, keys);
  if (common == keys) {
    AttendTile<kNv, false>(job, panel, t, k, v, common, keys);
    return;
  }
  for (std::int64_t r = 0; r < panel.width(); ++r) {
    const std::int64_t row = panel.first_row + std::min(r, panel.rows - 1);
    t.limit[r] = static_cast<float>(std::clamp<std::int64_t>(job.visible(row) - first, 0, keys));
  }
  AttendTile<kNv, true>(job, panel, t, k, v, common, keys);
}

inline void StartPanel(const Job& job, const Task& task, Panel& panel) {
  const std::int64_t width = panel.width();
  const float* from[kPanelVectors * kMostLanes];
  for (std::int64_t r = 0; r < width; ++r) {
    const std::int64_t row = panel.first_row + std::min(r, panel.rows - 1);
    from[r] = job.row_of(job.in.q, task.batch, task.kv_head, row);
  }
  TransposeIn(from, width, job.s.head_dim, job.scale, width, panel.qt);
  std::fill_n(panel.ot, job.s.head_dim * width, 0.0F);
  std::fill_n(panel.m, width, kMinusInf);
  std::fill_n(panel.l, width, 0.0F);
}

// Writes o, or with several chunks the unnormalised sums.
inline void FinishPanel(const Job& job, const Task& task, const Panel& panel,
                        const TileScratch& t) {
  const std::int64_t width = panel.width(), head_dim = job.s.head_dim;
  float* to[kPanelVectors * kMostLanes];
  float* factor = t.alpha;
  const std::int64_t offset = panel.first_row - task.first_row;
  for (std::int64_t r = 0; r < width; ++r) {
    if (r >= panel.rows) {
      to[r] = t.spare;
    } else if (task.partial != nullptr) {
      to[r] = task.partial_sums(job) + (offset + r) * head_dim;
    } else {
      to[r] = job.row_of(job.in.o, task.batch, task.kv_head, panel.first_row + r);
    }
    factor[r] = task.partial != nullptr ? 1 : 1 / panel.l[r];
  }
  TransposeOut(panel.ot, width, width, head_dim, factor, to);
  if (task.partial != nullptr) {
    std::copy_n(panel.m, panel.rows, task.partial_max() + offset);
    std::copy_n(panel.l, panel.rows, task.partial_weight(job) + offset);
    return;
  }
  for (std::int64_t r = 0; r < panel.rows && job.visible(panel.first_row + r) == 0; ++r) {
    std::fill_n(to[r], head_dim, 0.0F);
  }
}

// One task with vectors along the rows. `scratch` holds PrefillScratch(job) floats, 64-byte
// aligned.
inline void Prefill(const Job& job, const Task& task, float* scratch) {
  const std::int64_t lanes = LaneCount(), full = kPanelVectors * lanes;
  const auto take = [&scratch](std::int64_t floats) {
    float* taken = scratch;
    scratch += floats;
    return taken;
  };
  const std::int64_t vectors = hwy::DivCeil(task.rows, lanes);
  const std::int64_t count = PanelsOf(task.rows);
  const TileScratch t = {.s = take(job.kv_block * full),
                         .top = take(full),
                         .alpha = take(full),
                         .limit = take(full),
                         .spare = take(hwy::RoundUpTo(job.s.head_dim, 16))};
  float* const panels = scratch;
  const auto panel_at = [&](std::int64_t i) {
    const std::int64_t begin = vectors * i / count * lanes;
    const std::int64_t end = std::min(vectors * (i + 1) / count * lanes, task.rows);
    Panel panel;
    panel.first_row = task.first_row + begin;
    panel.rows = end - begin;
    panel.vectors = static_cast<int>(hwy::DivCeil(panel.rows, lanes));
    panel.most = job.visible(panel.first_row + panel.rows - 1);
    const std::int64_t width = panel.width();
    float* at = panels + i * (2 * job.s.head_dim + 2) * full;
    panel.qt = at;
    panel.ot = panel.qt + job.s.head_dim * width;
    panel.m = panel.ot + job.s.head_dim * width;
    panel.l = panel.m + width;
    return panel;
  };

  for (std::int64_t i = 0; i < count; ++i) {
    Panel panel = panel_at(i);
    StartPanel(job, task, panel);
  }
  for (std::int64_t first = task.first_key; first < task.last_key; first += job.kv_block) {
    const std::int64_t last = std::min(first + job.kv_block, task.last_key);
    for (std::int64_t i = 0; i < count; ++i) {
      const Panel panel = panel_at(i);
      switch (panel.vectors) {
        case 1:
          AttendKeys<1>(job, task, panel, t, first, last);
          break;
        case 2:
          AttendKeys<2>(job, task, panel, t, first, last);
          break;
        default:
          AttendKeys<3>(job, task, panel, t, first, last);
      }
    }
  }
  for (std::int64_t i = 0; i < count; ++i) FinishPanel(job, task, panel_at(i), t);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
