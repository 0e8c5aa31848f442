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

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/attention/hwy.hpp"
#include "kernels/attention/transpose-inl.h"
#include "kernels/common/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Dead ends on a Zen 5: exp fused with the products of 4 columns (0.99 times as fast); 16
// accumulators instead of 8 where a panel is one vector (1.02 at head_dim 64, 0.95 at 17 and 32).

// 3 vectors × nr accumulators, 3 loaded vectors and a broadcast: 28 of AVX-512's 32 registers with
// nr = 8 (24 accumulators hide 2 FMA ports × 4 cycles three times over), all 16 elsewhere with 4.
inline constexpr int kPanelVectors = 3;
inline constexpr int kTile = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
inline constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

inline std::int64_t LaneCount() { return static_cast<std::int64_t>(hn::Lanes(D())); }

// Rows that come next, fetched while products keep the core busy, so that memory works at the same
// time (Zen 5, keys and values from L3, head_dim 128: 16 rows 33 % of the FMA peak without, 67 %
// with; 48 rows 71 and 95). Nothing is fetched beyond the last row.
struct Ahead {
  const float* data = nullptr;  // null: nothing
  std::int64_t stride = 0, last = 0;

  // Column `col`'s line of rows [first,first+count), every `step`-th.
  HWY_INLINE void Lines(std::int64_t first, std::int64_t count, std::int64_t step,
                        std::int64_t col) const {
    if (data == nullptr) return;
    const std::int64_t end = std::min(first + count, last + 1);
    for (; first < end; first += step) hwy::Prefetch(data + first * stride + col);
  }
};
inline constexpr std::int64_t kLine = 64 / sizeof(float);  // floats in a cache line

// Rows that are wanted when a task ends and the next begins, fetched a few at a time all through
// the task. Fetched together just before their use they cost as much as not fetched at all (Zen 5,
// 24 heads of 512 queries and keys, head_dim 64, causal: 11 % of the time). Values of the next
// task's first tile, too, were no gain: 0.93 to 1.00.
class Upcoming {
 public:
  explicit Upcoming(std::int64_t head_dim) : head_dim_(head_dim) {}

  // `rows` rows from the one on where `walk` stands; `data` is row 0.
  void Add(const Heads& heads, const float* data, RowWalk walk, std::int64_t rows) {
    parts_[count_++] = {heads, data, walk, rows};
    rows_ += rows;
  }
  // Some() will be called this often.
  void Spread(std::int64_t calls) {
    quota_ = hwy::DivCeil(rows_, std::max<std::int64_t>(calls, 1));
  }

  HWY_INLINE void Some() {
    for (std::int64_t n = 0; n < quota_ && at_ < count_; ++n) {
      Part& part = parts_[at_];
      const float* row = part.walk.of(part.heads, part.data);
      for (std::int64_t c = 0; c < head_dim_; c += kLine) hwy::Prefetch(row + c);
      part.walk.next();
      if (--part.rows == 0) ++at_;
    }
  }

 private:
  struct Part {
    Heads heads;
    const float* data;
    RowWalk walk;
    std::int64_t rows;
  };
  Part parts_[3];  // o, q, keys
  int count_ = 0, at_ = 0;
  std::int64_t head_dim_, rows_ = 0, quota_ = 0;
};

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

// S[j+r,rows] for kNr keys of K and the panel's vectors from kFirst on, masked where a row sees
// fewer than j+r+1 keys of this tile; `top` becomes the maximum of itself and the scores.
template <int kNv, int kFirst, int kNr, bool kMasked>
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT qt, const float* HWY_RESTRICT k,
                          std::int64_t k_stride, std::int64_t head_dim, std::int64_t j,
                          const float* HWY_RESTRICT limit, float* HWY_RESTRICT s,
                          float* HWY_RESTRICT top, const Ahead& ahead) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V acc[kNr][kNv];
#pragma GCC unroll 8
  for (int r = 0; r < kNr; ++r) {
#pragma GCC unroll 3
    for (int v = kFirst; v < kNv; ++v) acc[r][v] = hn::Zero(d);
  }
  const std::int64_t part = ahead.data != nullptr ? kLine : head_dim;
  for (std::int64_t first = 0; first < head_dim; first += part) {
    ahead.Lines(j, kNr, 1, first);
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

// Scores of keys [from,to) and the panel's vectors from kFirst on become weights, added to `sum`.
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

// Scores [keys,rows] become weights exp(s - top), of vector v those of the first ends[v] keys; m, l
// are brought up to date, and alpha is what all sums over earlier tiles must be multiplied by.
template <int kNv>
HWY_INLINE void Soften(const std::int64_t* ends, const float* HWY_RESTRICT top,
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
  // Where V holds NaN or infinity beyond `common`, the keys that every row sees, a weight of 0 does
  // not do: lanes are selected by `limit` [rows], the keys that each row sees.
  bool select;
  std::int64_t common;
  const float* limit;
};

// Oᵀ[c+r,rows] = alpha·Oᵀ + Σ_j V[j,c+r]·P[j,rows] for kNr columns; v points at column c.
template <int kNv, int kNr>
HWY_INLINE void ValueTile(const Weights& w, const float* HWY_RESTRICT v, std::int64_t v_stride,
                          std::int64_t c, float* HWY_RESTRICT ot, const Ahead& ahead) {
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
    // Two tiles of 8 columns or four of 4 use a cache line up: each fetches some of the rows.
    const std::int64_t line = c / kLine * kLine, shares = kLine / kNr, share = c / kNr % shares;
    const std::int64_t part = ahead.data != nullptr ? kLine : w.ends[0];
    while (j < w.ends[0]) {
      ahead.Lines(j + share, kLine - share, shares, line);
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
        const auto seen = hn::Lt(position, hn::Load(d, w.limit + n * lanes));
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

// One tile of keys as one panel sees it.
struct KeyTile {
  const float *k, *v;
  std::int64_t k_stride, v_stride;
  std::int64_t keys;                 // that some row of the panel sees
  std::int64_t common;               // that every row sees
  std::int64_t ends[kPanelVectors];  // that some row of each vector sees
  bool select;                       // as in Weights
  Ahead values, next_keys;           // to be fetched: during scores, during values
  Upcoming* upcoming;                // fetched meanwhile
};

// Scores of keys [j,j+kNr), for those vectors that see any of them.
template <int kNv, int kNr>
HWY_INLINE void ScoreKeys(const Panel& panel, const TileScratch& t, const KeyTile& tile,
                          std::int64_t head_dim, std::int64_t j) {
  const float* k = tile.k + j * tile.k_stride;
  float* s = t.s + j * panel.width();
  tile.upcoming->Some();
  if (j + kNr <= tile.common) {
    ScoreTile<kNv, 0, kNr, false>(panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                                  tile.values);
    return;
  }
  if constexpr (kNv > 2) {
    if (tile.ends[1] <= j) {
      ScoreTile<kNv, 2, kNr, true>(panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                                   tile.values);
      return;
    }
  }
  if constexpr (kNv > 1) {
    if (tile.ends[0] <= j) {
      ScoreTile<kNv, 1, kNr, true>(panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                                   tile.values);
      return;
    }
  }
  ScoreTile<kNv, 0, kNr, true>(panel.qt, k, tile.k_stride, head_dim, j, t.limit, s, t.top,
                               tile.values);
}

template <int kNv>
HWY_NOINLINE void AttendTile(const Panel& panel, const TileScratch& t, const KeyTile& tile,
                             std::int64_t head_dim) {
  const std::int64_t width = panel.width();
  std::copy_n(panel.m, width, t.top);

  std::int64_t j = 0;
  for (; j + kTile <= tile.keys; j += kTile) ScoreKeys<kNv, kTile>(panel, t, tile, head_dim, j);
  if (j < tile.keys && tile.keys >= kTile) {
    // The last full tile once more, shifted: what it repeats comes out the same.
    ScoreKeys<kNv, kTile>(panel, t, tile, head_dim, tile.keys - kTile);
    j = tile.keys;
  }
  for (; j < tile.keys; ++j) ScoreKeys<kNv, 1>(panel, t, tile, head_dim, j);

  Soften<kNv>(tile.ends, t.top, t.s, panel.m, panel.l, t.alpha);

  const Weights w = {.p = t.s,
                     .alpha = t.alpha,
                     .ends = tile.ends,
                     .select = tile.select,
                     .common = tile.common,
                     .limit = t.limit};
  std::int64_t c = 0;
  for (; c + kTile <= head_dim; c += kTile) {
    ValueTile<kNv, kTile>(w, tile.v + c, tile.v_stride, c, panel.ot + c * width, tile.next_keys);
  }
  if (kTile > 4 && c + 4 <= head_dim) {
    ValueTile<kNv, 4>(w, tile.v + c, tile.v_stride, c, panel.ot + c * width, tile.next_keys);
    c += 4;
  }
  for (; c < head_dim; ++c) {
    ValueTile<kNv, 1>(w, tile.v + c, tile.v_stride, c, panel.ot + c * width, tile.next_keys);
  }
}

// The panel against keys [first,last). The first panel of a task fetches what comes next.
template <int kNv>
HWY_INLINE void AttendKeys(const Job& job, const Task& task, const Panel& panel,
                           const TileScratch& t, std::int64_t first, std::int64_t last,
                           Upcoming& upcoming) {
  const std::int64_t lanes = LaneCount(), head_dim = job.s.head_dim;
  KeyTile tile;
  tile.upcoming = &upcoming;
  tile.keys = std::min(last, panel.most) - first;
  if (tile.keys <= 0) return;
  tile.k_stride = job.in.k.row_stride;
  tile.v_stride = job.in.v.row_stride;
  tile.k = job.in.k.matrix(task.batch, task.kv_head) + first * tile.k_stride;
  tile.v = job.in.v.matrix(task.batch, task.kv_head) + first * tile.v_stride;
  if (task.fetches_keys(job) && panel.first_row == task.first_row) {
    tile.values = {.data = tile.v, .stride = tile.v_stride, .last = tile.keys - 1};
    if (last < task.last_key) {
      tile.next_keys = {.data = tile.k + (last - first) * tile.k_stride,
                        .stride = tile.k_stride,
                        .last = task.last_key - last - 1};
    }
  }
  const auto seen_by = [&](std::int64_t r) {
    const std::int64_t row = panel.first_row + std::min(r, panel.rows - 1);
    return std::clamp<std::int64_t>(job.visible(row) - first, 0, tile.keys);
  };
  tile.common = seen_by(0);
  for (int v = 0; v < kNv; ++v) tile.ends[v] = seen_by((v + 1) * lanes - 1);
  tile.select = false;
  if (tile.common < tile.keys) {
    RowWalk walk(job.group, panel.first_row);
    for (std::int64_t r = 0; r < panel.width(); ++r) {
      t.limit[r] = static_cast<float>(
          std::clamp<std::int64_t>(job.s.visible(walk.query()) - first, 0, tile.keys));
      if (r + 1 < panel.rows) walk.next();
    }
    tile.select = !AllFinite(tile.v + tile.common * tile.v_stride, tile.v_stride,
                             tile.keys - tile.common, head_dim);
  }
  AttendTile<kNv>(panel, t, tile, head_dim);
}

inline void StartPanel(const Job& job, const Task& task, Panel& panel) {
  const std::int64_t width = panel.width();
  const float* from[kPanelVectors * kMostLanes];
  float* const q = job.in.q.matrix(task.batch, task.kv_head * job.group);
  RowWalk walk(job.group, panel.first_row);
  for (std::int64_t r = 0; r < width; ++r) {
    from[r] = walk.of(job.in.q, q);
    if (r + 1 < panel.rows) walk.next();
  }
  TransposeIn(from, width, job.s.head_dim, job.scale, panel.qt);
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
  float* const o = job.in.o.matrix(task.batch, task.kv_head * job.group);
  RowWalk walk(job.group, panel.first_row);
  for (std::int64_t r = 0; r < width; ++r, walk.next()) {
    if (r >= panel.rows) {
      to[r] = t.spare;
    } else if (task.partial != nullptr) {
      to[r] = task.partial_sums(job) + (offset + r) * head_dim;
    } else {
      to[r] = walk.of(job.in.o, o);
    }
    factor[r] = task.partial != nullptr ? 1 : 1 / panel.l[r];
  }
  TransposeOut(panel.ot, width, head_dim, factor, to);
  if (task.partial != nullptr) {
    std::copy_n(panel.m, panel.rows, task.partial_max() + offset);
    std::copy_n(panel.l, panel.rows, task.partial_weight(job) + offset);
    return;
  }
  for (std::int64_t r = 0; r < panel.rows && job.visible(panel.first_row + r) == 0; ++r) {
    std::fill_n(to[r], head_dim, 0.0F);
  }
}

// What this task and the one that its thread is likely to go on with will ask for.
inline Upcoming Expect(const Job& job, const Task& task) {
  Upcoming upcoming(job.s.head_dim);
  if (!job.fetch) return upcoming;
  const auto add_rows = [&](const Heads& heads, const Task& of) {
    upcoming.Add(heads, heads.matrix(of.batch, of.kv_head * job.group),
                 RowWalk(job.group, of.first_row), of.rows);
  };
  if (task.partial == nullptr) add_rows(job.in.o, task);
  if (task.index + 1 == job.tasks()) return upcoming;
  const Task next(job, task.index + 1);
  add_rows(job.in.q, next);
  if (next.fetches_keys(job) && next.first_key < next.last_key) {
    upcoming.Add(job.in.k, job.in.k.matrix(next.batch, next.kv_head), RowWalk(1, next.first_key),
                 std::min(job.kv_block, next.last_key - next.first_key));
  }
  return upcoming;
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
  Upcoming upcoming = Expect(job, task);
  std::int64_t calls = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    calls += std::max<std::int64_t>(std::min(panel_at(i).most, task.last_key) - task.first_key, 0);
  }
  upcoming.Spread(calls / kTile);
  for (std::int64_t first = task.first_key; first < task.last_key; first += job.kv_block) {
    const std::int64_t last = std::min(first + job.kv_block, task.last_key);
    for (std::int64_t i = 0; i < count; ++i) {
      const Panel panel = panel_at(i);
      switch (panel.vectors) {
        case 1:
          AttendKeys<1>(job, task, panel, t, first, last, upcoming);
          break;
        case 2:
          AttendKeys<2>(job, task, panel, t, first, last, upcoming);
          break;
        default:
          AttendKeys<3>(job, task, panel, t, first, last, upcoming);
      }
    }
  }
  for (std::int64_t i = 0; i < count; ++i) FinishPanel(job, task, panel_at(i), t);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
