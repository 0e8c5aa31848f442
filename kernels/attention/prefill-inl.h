// Attention's prefill path: FlashAttention-2's online softmax over tiles, vectors along the rows
// (queries). K and V are read in place, one broadcast element at a time, so that they are not
// packed and any head_dim fits; only Q is packed, transposed. Decode: decode-inl.h.
//
// A Q micro-panel is up to 3 vectors of rows. For each tile of kv_block keys:
//   S[j,rows]  = K[j,:]·Qᵀ[:,rows]            ScoreTile: micro-tiles of nr keys × nv vectors
//                                             AdjustTile (options-inl.h): mask, window
//   P          = exp(S - m), l, alpha         OnlineSoftmax: every lane is a row, no reductions
//   Oᵀ[c,rows] = alpha·Oᵀ + V[:,c]·P          ValueTile: micro-tiles of nr columns × nv vectors
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

#include "hwy/highway.h"
#include "kernels/attention/hwy.hpp"
#include "kernels/attention/lanes-inl.h"
#include "kernels/attention/options-inl.h"
#include "kernels/attention/prefetch-inl.h"
#include "kernels/attention/stored-inl.h"
#include "kernels/attention/transpose-inl.h"
#include "kernels/common/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

// Dead ends on a Zen 5: exp fused with the products of 4 columns; 16 accumulators instead of 8
// where a Q micro-panel is one vector.

// 3 vectors × nr accumulators, 3 loaded vectors and a broadcast: 28 of AVX-512's 32 registers with
// nr = 8 (24 accumulators hide 2 FMA ports × 4 cycles three times over), all 16 elsewhere with 4.
inline constexpr int kMicroPanelVectors = 3;
inline constexpr int kTile = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

// acc[r][v] += a[v]·b[r], the inner step of both products: a is a row of vectors, b is kNr elements
// `b_stride` apart. Vectors before kFirst are left out.
template <int kNv, int kFirst, int kNr>
HWY_INLINE void AddProducts(V (&acc)[kNr][kNv], const float* HWY_RESTRICT a,
                            const float* HWY_RESTRICT b, std::int64_t b_stride) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V row[kNv];
#pragma GCC unroll 3
  for (int v = kFirst; v < kNv; ++v) row[v] = hn::Load(d, a + v * lanes);
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
    const V element = hn::Set(d, b[r * b_stride]);
#pragma GCC unroll 3
    for (int v = kFirst; v < kNv; ++v) acc[r][v] = hn::MulAdd(row[v], element, acc[r][v]);
  }
}

// S[j+r,rows] for kNr keys of K and the Q micro-panel's vectors from kFirst on, masked where a row
// sees fewer than j+r+1 keys of this tile; `top` becomes the maximum of itself and the scores.
template <int kNv, int kFirst, int kNr, bool kMasked>
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT qt, const float* HWY_RESTRICT k,
                          std::int64_t k_stride, std::int64_t head_dim, std::int64_t j,
                          const float* HWY_RESTRICT limit, float* HWY_RESTRICT s,
                          float* HWY_RESTRICT top, const RowPrefetch& prefetch) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V acc[kNr][kNv];
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
#pragma GCC unroll 3
    for (int v = kFirst; v < kNv; ++v) acc[r][v] = hn::Zero(d);
  }
  const std::int64_t part = prefetch.data != nullptr ? kLine : head_dim;
  for (std::int64_t first = 0; first < head_dim; first += part) {
    prefetch.Lines(j, kNr, 1, first);
    const std::int64_t last = std::min(first + part, head_dim);
    for (std::int64_t i = first; i < last; ++i) {
      AddProducts<kNv, kFirst, kNr>(acc, qt, k + i, k_stride);
      qt += kNv * lanes;
    }
  }
#pragma GCC unroll 3
  for (int v = kFirst; v < kNv; ++v) {
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

// Scores of keys [from,to) and the Q micro-panel's vectors from kFirst on become weights, added to
// `sum`.
template <int kNv, int kFirst>
HWY_INLINE void Weigh(std::int64_t from, std::int64_t to, const V (&base)[kNv],
                      float* HWY_RESTRICT s, V (&sum)[kNv]) {
  const D d;
  const std::int64_t lanes = LaneCount();
  for (std::int64_t j = from; j < to; ++j) {
#pragma GCC unroll 3
    for (int v = kFirst; v < kNv; ++v) {
      float* score = s + (j * kNv + v) * lanes;
      const V weight =
          common::HWY_NAMESPACE::ExpNonPositive(d, hn::Sub(hn::Load(d, score), base[v]));
      sum[v] = hn::Add(sum[v], weight);
      hn::Store(weight, d, score);
    }
  }
}

// The online-softmax step: scores [keys,rows] become weights exp(s - top), of vector v those of the
// first ends[v] keys; m, l are brought up to date, and alpha is the rescale of all sums over
// earlier tiles.
template <int kNv>
HWY_INLINE void OnlineSoftmax(const std::int64_t* ends, const float* HWY_RESTRICT top,
                              float* HWY_RESTRICT s, float* HWY_RESTRICT m, float* HWY_RESTRICT l,
                              float* HWY_RESTRICT alpha) {
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
  Weigh<kNv, 0>(0, ends[0], base, s, sum);
  if constexpr (kNv > 1) Weigh<kNv, 1>(ends[0], ends[1], base, s, sum);
  if constexpr (kNv > 2) Weigh<kNv, 2>(ends[1], ends[2], base, s, sum);
#pragma GCC unroll 3
  for (int v = 0; v < kNv; ++v) hn::Store(sum[v], d, l + v * lanes);
}

// What ValueTile reads beside its columns of V.
struct Weights {
  const float* p;            // [keys,rows]
  const float* alpha;        // [rows]
  const std::int64_t* ends;  // [vectors]: keys that some row of the vector sees
  // Where V holds NaN or infinity beyond the first `common` keys, a weight of 0 does not do: lanes
  // are selected, keys [low,limit) of each row [rows].
  bool select;
  std::int64_t common;
  const float *low, *limit;
};

// Oᵀ[c+r,rows] = alpha·Oᵀ + Σ_j V[j,c+r]·P[j,rows] for kNr columns; v points at column c.
template <int kNv, int kNr>
HWY_INLINE void ValueTile(const Weights& w, const float* HWY_RESTRICT v, std::int64_t v_stride,
                          std::int64_t c, float* HWY_RESTRICT ot, const RowPrefetch& prefetch) {
  const D d;
  const std::int64_t lanes = LaneCount();
  const float* HWY_RESTRICT p = w.p;
  V acc[kNr][kNv];
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
#pragma GCC unroll 3
    for (int n = 0; n < kNv; ++n) {
      acc[r][n] =
          hn::Mul(hn::Load(d, w.alpha + n * lanes), hn::Load(d, ot + (r * kNv + n) * lanes));
    }
  }
  std::int64_t j = 0;
  if (!w.select) {
    // Two tiles of 8 columns or four of 4 use a cache line up: each prefetches some of the rows.
    const std::int64_t line = c / kLine * kLine, shares = kLine / kNr, share = c / kNr % shares;
    const std::int64_t part = prefetch.data != nullptr ? kLine : w.ends[0];
    while (j < w.ends[0]) {
      prefetch.Lines(j + share, kLine - share, shares, line);
      const std::int64_t last = std::min(j + part, w.ends[0]);
      for (; j < last; ++j) {
        AddProducts<kNv, 0, kNr>(acc, p + j * kNv * lanes, v + j * v_stride, 1);
      }
    }
    if constexpr (kNv > 1) {
      for (; j < w.ends[1]; ++j) {
        AddProducts<kNv, 1, kNr>(acc, p + j * kNv * lanes, v + j * v_stride, 1);
      }
    }
    if constexpr (kNv > 2) {
      for (; j < w.ends[2]; ++j) {
        AddProducts<kNv, 2, kNr>(acc, p + j * kNv * lanes, v + j * v_stride, 1);
      }
    }
  } else {
    for (; j < w.common; ++j) {
      AddProducts<kNv, 0, kNr>(acc, p + j * kNv * lanes, v + j * v_stride, 1);
    }
    for (; j < w.ends[kNv - 1]; ++j) {
      const V position = hn::Set(d, static_cast<float>(j));
#pragma GCC unroll 3
      for (int n = 0; n < kNv; ++n) {
        const V weight = hn::Load(d, p + (j * kNv + n) * lanes);
        const auto seen = hn::And(hn::Le(hn::Load(d, w.low + n * lanes), position),
                                  hn::Lt(position, hn::Load(d, w.limit + n * lanes)));
#pragma GCC unroll 8
        for (int r = 0; r < kNr; ++r) {
          const V next = hn::MulAdd(weight, hn::Set(d, v[j * v_stride + r]), acc[r][n]);
          acc[r][n] = hn::IfThenElse(seen, next, acc[r][n]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
#pragma GCC unroll 3
    for (int n = 0; n < kNv; ++n) hn::Store(acc[r][n], d, ot + (r * kNv + n) * lanes);
  }
}

// Whether `rows` rows of `cols` floats hold no NaN and no infinity.
inline bool AllFinite(const float* HWY_RESTRICT x, std::int64_t stride, std::int64_t rows,
                      std::int64_t cols) {
  const D d;
  const std::int64_t lanes = LaneCount();
  const V zero = hn::Zero(d);
  V vectors = zero;
  float rest = 0;
  for (std::int64_t j = 0; j < rows; ++j) {
    std::int64_t c = 0;
    for (; c + lanes <= cols; c += lanes) {
      vectors = hn::MulAdd(hn::LoadU(d, x + j * stride + c), zero, vectors);
    }
    for (; c < cols; ++c) rest += x[j * stride + c] * 0.0F;
  }
  return hn::AllTrue(d, hn::Eq(vectors, zero)) && rest == 0;
}

// A Q micro-panel: up to kMicroPanelVectors vectors of rows with their sums. Lanes beyond the last
// row repeat it.
struct QMicroPanel {
  std::int64_t first_row, rows;
  int vectors;
  float *qt, *ot;                   // [head_dim,width], [v_dim,width]
  float *m, *l;                     // [width]
  std::int64_t first_key, end_key;  // what the rows see together

  std::int64_t width() const { return vectors * LaneCount(); }
};

// What all Q micro-panels of a thread share.
struct TileScratch {
  float* s;                          // [kv_block,width]
  float *top, *alpha, *low, *limit;  // [width]
  float* mask;                       // [kv_block,width] if there is one
  float* spare;                      // [v_dim]: output of lanes beyond the last row
  float* rows;                       // [width,head_dim or v_dim] where q and o are converted
};

inline constexpr std::int64_t kMostLanes = 64;  // 2048-bit vectors, the longest that exist

// The Q micro-panels of q_block rows, vectors spread evenly over them: 3 3 2 rather than 3 3 1 1.
inline std::int64_t QMicroPanelsOf(std::int64_t rows) {
  return hwy::DivCeil(hwy::DivCeil(rows, LaneCount()), std::int64_t{kMicroPanelVectors});
}

// Floats of the rows of q or o of a Q micro-panel, where they are converted.
inline std::int64_t ConvertedRows(const Job& job) {
  if (!job.converts_rows()) return 0;
  return kMicroPanelVectors * LaneCount() *
         hwy::RoundUpTo(std::max(job.s.head_dim, job.s.v_dim), 16);
}

// Floats of scratch that a thread needs; every part starts on a cache line.
inline std::int64_t PrefillScratch(const Job& job) {
  const std::int64_t width = kMicroPanelVectors * LaneCount();
  const std::int64_t q_panel = (job.s.head_dim + job.s.v_dim + 2) * width;
  const std::int64_t tile = (job.s.mask ? 2 : 1) * job.kv_block + 4;
  return ConvertedFloats(job) + ConvertedRows(job) + QMicroPanelsOf(job.q_block) * q_panel +
         tile * width + job.s.v_dim + 16;
}

// One tile of keys as one Q micro-panel sees it.
struct KeyTile {
  const float *k, *v;
  std::int64_t k_stride, v_stride;
  std::int64_t keys;                      // that some row of the micro-panel sees
  std::int64_t common;                    // that every row sees but for its window
  std::int64_t ends[kMicroPanelVectors];  // that some row of each vector sees
  bool adjust;                            // softcap or mask, or a window hides keys from some row
  bool select;                            // as in Weights
  RowPrefetch values, next_keys;          // to be prefetched: during scores, during values
  TaskPrefetch* task_prefetch;            // issued meanwhile
};

// Scores of keys [j,j+kNr), for those vectors that see any of them.
template <int kNv, int kNr>
HWY_INLINE void ScoreKeys(const QMicroPanel& q_panel, const TileScratch& t, const KeyTile& tile,
                          std::int64_t head_dim, std::int64_t j) {
  const float* k = tile.k + j * tile.k_stride;
  float* s = t.s + j * q_panel.width();
  tile.task_prefetch->Issue();
  if (j + kNr <= tile.common) {
    ScoreTile<kNv, 0, kNr, false>(q_panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                                  tile.values);
    return;
  }
  if constexpr (kNv > 2) {
    if (tile.ends[1] <= j) {
      ScoreTile<kNv, 2, kNr, true>(q_panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                                   tile.values);
      return;
    }
  }
  if constexpr (kNv > 1) {
    if (tile.ends[0] <= j) {
      ScoreTile<kNv, 1, kNr, true>(q_panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                                   tile.values);
      return;
    }
  }
  ScoreTile<kNv, 0, kNr, true>(q_panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                               tile.values);
}

template <int kNv>
HWY_NOINLINE void AttendTile(const QMicroPanel& q_panel, const TileScratch& t, const KeyTile& tile,
                             const Job& job) {
  const std::int64_t width = q_panel.width(), head_dim = job.s.head_dim, v_dim = job.s.v_dim;
  std::copy_n(q_panel.m, width, t.top);

  std::int64_t j = 0;
  for (; j + kTile <= tile.keys; j += kTile) ScoreKeys<kNv, kTile>(q_panel, t, tile, head_dim, j);
  if (j < tile.keys && tile.keys >= kTile) {
    // The last full tile once more, shifted: what it repeats comes out the same.
    ScoreKeys<kNv, kTile>(q_panel, t, tile, head_dim, tile.keys - kTile);
    j = tile.keys;
  }
  for (; j < tile.keys; ++j) ScoreKeys<kNv, 1>(q_panel, t, tile, head_dim, j);

  if (tile.adjust) {
    std::copy_n(q_panel.m, width, t.top);
    if (job.s.softcap != 0) CapScores(job, tile.keys * width, t.s);
    AdjustTile<kNv>(tile.keys, job.s.mask ? t.mask : nullptr, t.low, t.limit, t.s, t.top);
  }
  OnlineSoftmax<kNv>(tile.ends, t.top, t.s, q_panel.m, q_panel.l, t.alpha);

  const Weights w = {.p = t.s,
                     .alpha = t.alpha,
                     .ends = tile.ends,
                     .select = tile.select,
                     .common = tile.adjust ? 0 : tile.common,
                     .low = t.low,
                     .limit = t.limit};
  std::int64_t c = 0;
  for (; c + kTile <= v_dim; c += kTile) {
    ValueTile<kNv, kTile>(w, tile.v + c, tile.v_stride, c, q_panel.ot + c * width, tile.next_keys);
  }
  if (kTile > 4 && c + 4 <= v_dim) {
    ValueTile<kNv, 4>(w, tile.v + c, tile.v_stride, c, q_panel.ot + c * width, tile.next_keys);
    c += 4;
  }
  for (; c < v_dim; ++c) {
    ValueTile<kNv, 1>(w, tile.v + c, tile.v_stride, c, q_panel.ot + c * width, tile.next_keys);
  }
}

// For keys [first,first+tile.keys): where the keys that each row sees begin and end, and whether V
// needs a selection; the mask, transposed.
inline void LimitRows(const Job& job, const VisibleKeys& visible, const QMicroPanel& q_panel,
                      const TileScratch& t, std::int64_t first, KeyTile& tile) {
  const std::int64_t width = q_panel.width(), last_row = q_panel.first_row + q_panel.rows - 1;
  const std::int64_t hidden =  // by the window from some row
      std::clamp<std::int64_t>(visible.first_key(last_row) - first, 0, tile.keys);
  tile.adjust = job.changes_scores() || hidden > 0;
  tile.select = false;
  if (tile.common == tile.keys && !tile.adjust) return;
  const float* mask[kMicroPanelVectors * kMostLanes];
  RowWalk walk(job.group, q_panel.first_row);
  for (std::int64_t r = 0; r < width; ++r) {
    const auto in_tile = [&](std::int64_t key) {
      return static_cast<float>(std::clamp<std::int64_t>(key - first, 0, tile.keys));
    };
    t.low[r] = in_tile(visible.s.first_key(walk.query()));
    t.limit[r] = in_tile(visible.s.end_key(walk.query()));
    if (job.s.mask) mask[r] = job.in.mask.row(walk.query()) + first;
    if (r + 1 < q_panel.rows) walk.next();
  }
  if (job.s.mask) TransposeIn(mask, width, tile.keys, 1, t.mask);
  const std::int64_t stride = tile.v_stride, v_dim = job.s.v_dim;
  tile.select = !AllFinite(tile.v, stride, hidden, v_dim) ||
                !AllFinite(tile.v + tile.common * stride, stride, tile.keys - tile.common, v_dim);
}

// The Q micro-panel against the keys of `rows`, up to `last`. The first one of a task prefetches
// what comes next.
template <int kNv>
HWY_INLINE void AttendKeys(const Job& job, const Task& task, const QMicroPanel& q_panel,
                           const TileScratch& t, const KeyRows& rows, std::int64_t last,
                           TaskPrefetch& task_prefetch) {
  const std::int64_t lanes = LaneCount();
  KeyTile tile;
  tile.task_prefetch = &task_prefetch;
  const std::int64_t first = std::max(rows.first, q_panel.first_key);
  tile.keys = std::min(last, q_panel.end_key) - first;
  if (tile.keys <= 0) return;
  tile.k_stride = rows.k_stride;
  tile.v_stride = rows.v_stride;
  tile.k = rows.k + (first - rows.first) * tile.k_stride;
  tile.v = rows.v + (first - rows.first) * tile.v_stride;
  if (task.prefetches_keys(job) && q_panel.first_row == task.first_row) {
    tile.values = {.data = tile.v, .stride = tile.v_stride, .last = tile.keys - 1};
    if (last < task.last_key) {
      tile.next_keys = {.data = tile.k + (last - first) * tile.k_stride,
                        .stride = tile.k_stride,
                        .last = task.last_key - last - 1};
    }
  }
  const auto seen_by = [&](std::int64_t r) {
    const std::int64_t row = q_panel.first_row + std::min(r, q_panel.rows - 1);
    return std::clamp<std::int64_t>(task.visible.end_key(row) - first, 0, tile.keys);
  };
  tile.common = seen_by(0);
  for (int v = 0; v < kNv; ++v) tile.ends[v] = seen_by((v + 1) * lanes - 1);
  LimitRows(job, task.visible, q_panel, t, first, tile);
  AttendTile<kNv>(q_panel, t, tile, job);
}

inline void StartMicroPanel(const Job& job, const Task& task, const TileScratch& t,
                            QMicroPanel& q_panel) {
  const std::int64_t width = q_panel.width(), head_dim = job.s.head_dim;
  const float* from[kMicroPanelVectors * kMostLanes];
  if (job.converts_rows()) {
    for (std::int64_t r = 0; r < width; ++r) {
      from[r] = t.rows + std::min(r, q_panel.rows - 1) * head_dim;
    }
    for (std::int64_t r = 0; r < q_panel.rows; ++r) {
      WidenRow(job.s.type,
               job.row_of(job.in.stored_q, task.batch, task.kv_head, q_panel.first_row + r),
               t.rows + r * head_dim, head_dim);
    }
  } else {
    float* const q = job.in.q.matrix(task.batch, task.kv_head * job.group);
    RowWalk walk(job.group, q_panel.first_row);
    for (std::int64_t r = 0; r < width; ++r) {
      from[r] = walk.of(job.in.q, q);
      if (r + 1 < q_panel.rows) walk.next();
    }
  }
  TransposeIn(from, width, head_dim, job.scale, q_panel.qt);
  std::fill_n(q_panel.ot, job.s.v_dim * width, 0.0F);
  std::fill_n(q_panel.m, width, kMinusInf);
  std::fill_n(q_panel.l, width, 0.0F);
}

// Writes o, or with several chunks the unnormalised sums.
inline void FinishMicroPanel(const Job& job, const Task& task, const QMicroPanel& q_panel,
                             const TileScratch& t) {
  const std::int64_t width = q_panel.width(), v_dim = job.s.v_dim;
  float* to[kMicroPanelVectors * kMostLanes];
  float* factor = t.alpha;
  const std::int64_t offset = q_panel.first_row - task.first_row;
  const bool converts = task.partial == nullptr && job.converts_rows();
  float* const o = converts ? nullptr : job.in.o.matrix(task.batch, task.kv_head * job.group);
  RowWalk walk(job.group, q_panel.first_row);
  for (std::int64_t r = 0; r < width; ++r, walk.next()) {
    if (r >= q_panel.rows) {
      to[r] = t.spare;
    } else if (task.partial != nullptr) {
      to[r] = task.partial_sums(job) + (offset + r) * v_dim;
    } else if (converts) {
      to[r] = t.rows + r * v_dim;
    } else {
      to[r] = walk.of(job.in.o, o);
    }
    factor[r] = task.partial != nullptr ? 1 : 1 / q_panel.l[r];
  }
  TransposeOut(q_panel.ot, width, v_dim, factor, to);
  if (task.partial != nullptr) {
    std::copy_n(q_panel.m, q_panel.rows, task.partial_max() + offset);
    std::copy_n(q_panel.l, q_panel.rows, task.partial_weight(job) + offset);
    return;
  }
  for (std::int64_t r = 0; r < q_panel.rows && task.visible.end_key(q_panel.first_row + r) == 0;
       ++r) {
    std::fill_n(to[r], v_dim, 0.0F);
  }
  for (std::int64_t r = 0; converts && r < q_panel.rows; ++r) {
    NarrowRow(job.s.type, to[r],
              job.row_of(job.in.stored_o, task.batch, task.kv_head, q_panel.first_row + r), v_dim);
  }
}

// What this task and the one that its thread is likely to go on with will ask for.
inline TaskPrefetch TaskPrefetchOf(const Job& job, const Task& task) {
  TaskPrefetch task_prefetch;
  if (!job.prefetch) return task_prefetch;
  const auto add_rows = [&](const Heads& heads, const Task& of, std::int64_t width) {
    task_prefetch.Add(heads, heads.matrix(of.batch, of.kv_head * job.group),
                      RowWalk(job.group, of.first_row), of.rows, width);
  };
  // Converted rows are read and written in order, which the hardware prefetches.
  if (task.partial == nullptr && !job.converts_rows()) add_rows(job.in.o, task, job.s.v_dim);
  if (task.index + 1 == job.tasks()) return task_prefetch;
  const Task next(job, task.index + 1);
  if (!job.converts_rows()) add_rows(job.in.q, next, job.s.head_dim);
  if (next.prefetches_keys(job) && next.first_key < next.last_key) {
    task_prefetch.Add(job.in.k, job.in.k.matrix(next.batch, next.kv_head),
                      RowWalk(1, next.first_key),
                      std::min(job.kv_block, next.last_key - next.first_key), job.s.head_dim);
  }
  return task_prefetch;
}

// One task with vectors along the rows. `scratch` holds PrefillScratch(job) floats, 64-byte
// aligned.
inline void Prefill(const Job& job, const Task& task, float* scratch) {
  const std::int64_t lanes = LaneCount(), full = kMicroPanelVectors * lanes;
  const auto take = [&scratch](std::int64_t floats) {
    float* taken = scratch;
    scratch += floats;
    return taken;
  };
  const std::int64_t vectors = hwy::DivCeil(task.rows, lanes);
  const std::int64_t count = QMicroPanelsOf(task.rows);
  float* const converted = take(ConvertedFloats(job));
  const TileScratch t = {.s = take(job.kv_block * full),
                         .top = take(full),
                         .alpha = take(full),
                         .low = take(full),
                         .limit = take(full),
                         .mask = take(job.s.mask ? job.kv_block * full : 0),
                         .spare = take(hwy::RoundUpTo(job.s.v_dim, 16)),
                         .rows = take(ConvertedRows(job))};
  float* const q_panels = scratch;
  const auto q_panel_at = [&](std::int64_t i) {
    const std::int64_t begin = vectors * i / count * lanes;
    const std::int64_t end = std::min(vectors * (i + 1) / count * lanes, task.rows);
    QMicroPanel p;
    p.first_row = task.first_row + begin;
    p.rows = end - begin;
    p.vectors = static_cast<int>(hwy::DivCeil(p.rows, lanes));
    p.first_key = task.visible.first_key(p.first_row);
    p.end_key = task.visible.end_key(p.first_row + p.rows - 1);
    const std::int64_t width = p.width();
    p.qt = q_panels + i * (job.s.head_dim + job.s.v_dim + 2) * full;
    p.ot = p.qt + job.s.head_dim * width;
    p.m = p.ot + job.s.v_dim * width;
    p.l = p.m + width;
    return p;
  };

  PhaseLog* const log = log_of(job, task);
  {
    const PhaseTimer timer(log, RunPhase::pack);
    for (std::int64_t i = 0; i < count; ++i) {
      QMicroPanel q_panel = q_panel_at(i);
      StartMicroPanel(job, task, t, q_panel);
    }
  }
  TaskPrefetch task_prefetch = TaskPrefetchOf(job, task);
  std::int64_t calls = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const QMicroPanel p = q_panel_at(i);
    calls += std::max<std::int64_t>(
        std::min(p.end_key, task.last_key) - std::max(p.first_key, task.first_key), 0);
  }
  task_prefetch.SpreadOver(calls / kTile);
  for (std::int64_t first = task.first_key; first < task.last_key; first += job.kv_block) {
    const std::int64_t last = std::min(first + job.kv_block, task.last_key);
    const KeyRows rows = RowsOf(job, task.batch, task.kv_head, first, last - first, converted);
    for (std::int64_t i = 0; i < count; ++i) {
      const QMicroPanel q_panel = q_panel_at(i);
      switch (q_panel.vectors) {
        case 1:
          AttendKeys<1>(job, task, q_panel, t, rows, last, task_prefetch);
          break;
        case 2:
          AttendKeys<2>(job, task, q_panel, t, rows, last, task_prefetch);
          break;
        default:
          AttendKeys<3>(job, task, q_panel, t, rows, last, task_prefetch);
      }
    }
  }
  const PhaseTimer timer(log, RunPhase::store);
  for (std::int64_t i = 0; i < count; ++i) FinishMicroPanel(job, task, q_panel_at(i), t);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
