// Attention's decode path (one new query per head, or few): vectors along head_dim, all rows of a
// kv head together, so that K and V come from memory once; that reading is the limit. Prefill:
// prefill-inl.h. Also here: merging the chunks into which a task's keys were split (split-KV).

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_ATTENTION_DECODE_INL_H_
#undef ROOFLANE_KERNELS_ATTENTION_DECODE_INL_H_
#else
#define ROOFLANE_KERNELS_ATTENTION_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/attention/hwy.hpp"
#include "kernels/attention/lanes-inl.h"
#include "kernels/attention/options-inl.h"
#include "kernels/attention/prefetch-inl.h"
#include "kernels/attention/prefill-inl.h"
#include "kernels/attention/stored-inl.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/register-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

namespace hc = common::HWY_NAMESPACE;

// What registers contain at once: kScoreRows rows × kScoreKeys keys; kValueSums vectors of sums, as
// rows × vectors of columns.
inline constexpr int kScoreRows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
inline constexpr int kScoreKeys = 4;
inline constexpr int kValueSums = HWY_TARGET <= HWY_AVX3 ? 16 : 8;

// The columns of q and k, or of v and o, as whole vectors. The last one is moved back to end where
// the row ends, so nothing is read beyond; the lanes it repeats are held at zero in Q and K.
struct Columns {
  explicit Columns(std::int64_t width)
      : vectors(hwy::DivCeil(width, LaneCount())),
        padded(vectors * LaneCount()),
        last(width - LaneCount()),
        repeated(padded - width) {}
  std::int64_t vectors, padded;
  std::int64_t last;      // where the last vector begins
  std::int64_t repeated;  // its lanes that the vector before holds already
};

// Whether vectors along head_dim take fewer cycles a key than vectors along the rows, with 2 FMA
// ports. Here each row takes half a cycle per vector of k and of v, 2.5 for the sums across lanes
// and exp, and 1.25 for each last vector that is not whole. A vector of rows, however few of its
// lanes are used, takes a multiply-add per element of k and of v (0.6 cycles with kTile = 8 sums
// under way; 1 with 4, for each waits 4 cycles for the one before) and 8 for the rest.
inline bool DecodeIsFaster(const Sizes& s) {
  const std::int64_t rows = s.group() * s.q_len;
  if (rows > LaneCount() || std::min(s.head_dim, s.v_dim) < LaneCount()) return false;
  double row = 2.5;
  for (const std::int64_t width : {s.head_dim, s.v_dim}) {
    row += 0.5 * static_cast<double>(width / LaneCount());
    row += Columns(width).repeated != 0 ? 1.25 : 0;
  }
  const double key = (kTile >= 8 ? 0.6 : 1) * static_cast<double>(s.head_dim + s.v_dim) + 8;
  return static_cast<double>(rows) * row <= key;
}

struct DecodeBuffers {
  float *q, *o;          // [rows,padded] of k's and of v's columns
  float* s;              // [rows,stride]
  std::int64_t stride;   // kv_block in whole vectors
  float *m, *l, *alpha;  // [rows]
};

inline std::int64_t DecodeScratch(const Job& job) {
  const std::int64_t padded = Columns(job.s.head_dim).padded + Columns(job.s.v_dim).padded;
  const std::int64_t stride = hwy::RoundUpTo(job.kv_block, LaneCount());
  return ConvertedFloats(job) + job.q_block * (padded + stride) +
         3 * hwy::RoundUpTo(job.q_block, 16);
}

// to[u] = the sum of v[u]'s lanes.
template <int kKeys>
HWY_INLINE void StoreSums(const V (&v)[kKeys], float* to) {
  const D d;
  if constexpr (kKeys == 4) {
    hc::ReduceFour(d, v[0], v[1], v[2], v[3], hc::Plus(), to);
  } else {
    for (int u = 0; u < kKeys; ++u) to[u] = hc::SumLanes(d, v[u]);
  }
}

// s[r,u] = q[r]·k[u] for kRows rows and kKeys keys, from key j of the tile on.
template <int kRows, int kKeys, class F>
HWY_INLINE void Dots(const Columns& columns, const float* HWY_RESTRICT q,
                     const float* HWY_RESTRICT k, std::int64_t k_stride, float* HWY_RESTRICT s,
                     std::int64_t s_stride, std::int64_t j, const F& prefetch) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V acc[kRows][kKeys];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int u = 0; u < kKeys; ++u) acc[r][u] = hn::Zero(d);
  }
  const std::int64_t whole = columns.vectors - (columns.repeated != 0);
  auto cursor = prefetch.From(j, 0);
  for (std::int64_t u = 0; u < kKeys; ++u) cursor.Row(j + u);
  for (std::int64_t i = 0; i < whole; ++i) {
    cursor.template Next<kKeys>();
    V key[kKeys];
#pragma GCC unroll 4
    for (int u = 0; u < kKeys; ++u) {
      key[u] = hc::InRegister<kRows>(hn::LoadU(d, k + u * k_stride + i * lanes));
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V query = hc::InRegister<kKeys>(hn::Load(d, q + r * columns.padded + i * lanes));
#pragma GCC unroll 4
      for (int u = 0; u < kKeys; ++u) acc[r][u] = hn::MulAdd(query, key[u], acc[r][u]);
    }
  }
  if (columns.repeated != 0) {
    const auto done = hn::FirstN(d, static_cast<std::size_t>(columns.repeated));
#pragma GCC unroll 4
    for (int u = 0; u < kKeys; ++u) {
      const V key = hn::IfThenZeroElse(done, hn::LoadU(d, k + u * k_stride + columns.last));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const V query = hn::Load(d, q + r * columns.padded + whole * lanes);
        acc[r][u] = hn::MulAdd(query, key, acc[r][u]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) StoreSums(acc[r], s + r * s_stride);
}

template <int kRows, class F>
HWY_INLINE void DotsOfRows(const Columns& columns, const float* q, const float* k,
                           std::int64_t k_stride, std::int64_t first, std::int64_t last, float* s,
                           std::int64_t s_stride, const F& prefetch) {
  std::int64_t j = first;
  for (; j + kScoreKeys <= last; j += kScoreKeys) {
    Dots<kRows, kScoreKeys>(columns, q, k + j * k_stride, k_stride, s + j, s_stride, j, prefetch);
  }
  for (; j < last; ++j) {
    Dots<kRows, 1>(columns, q, k + j * k_stride, k_stride, s + j, s_stride, j, prefetch);
  }
}

// o[r,c..] = alpha[r]·o + Σ_j s[r,j]·V[j,c..] for kRows rows and kVectors vectors of columns, which
// begin at `column` in a row of V, to which v points.
template <int kRows, int kVectors, class F>
HWY_INLINE void Values(const Columns& columns, const float* HWY_RESTRICT s, std::int64_t s_stride,
                       const float* HWY_RESTRICT v, std::int64_t v_stride, std::int64_t first,
                       std::int64_t last, const float* HWY_RESTRICT alpha, float* HWY_RESTRICT o,
                       std::int64_t column, const F& prefetch) {
  const D d;
  const std::int64_t lanes = LaneCount();
  V acc[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; ++n) {
      acc[r][n] = hn::Mul(hn::Set(d, alpha[r]), hn::Load(d, o + r * columns.padded + n * lanes));
    }
  }
  const auto add = [&](std::int64_t j) ROOFLANE_LAMBDA {
    const float* row = v + j * v_stride;
    V weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weight[r] = hn::Set(d, s[r * s_stride + j]);
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; ++n) {
      const V value = hc::InRegister<kRows>(hn::LoadU(d, row + n * lanes));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) acc[r][n] = hn::MulAdd(weight[r], value, acc[r][n]);
    }
  };
  std::int64_t j = first;
  auto cursor = prefetch.From(first, column * (last - first));
  for (; j < last; ++j) {
    cursor.Row(j);
    cursor.template Next<kVectors>();
    add(j);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; ++n) {
      hn::Store(acc[r][n], d, o + r * columns.padded + n * lanes);
    }
  }
}

// Columns [n,n+kVectors) and on in steps of kVectors vectors; returns where it stopped.
template <int kRows, int kVectors, class F>
HWY_INLINE std::int64_t ValueColumns(const Columns& columns, const DecodeBuffers& t,
                                     std::int64_t row, const float* v, std::int64_t v_stride,
                                     std::int64_t first, std::int64_t last, const float* alpha,
                                     std::int64_t n, const F& prefetch) {
  const std::int64_t lanes = LaneCount();
  const std::int64_t whole = columns.vectors - (columns.repeated != 0);
  const float* s = t.s + row * t.stride;
  float* o = t.o + row * columns.padded;
  if (n == 0 && kVectors <= whole) {  // the pass that meets these rows of V first
    Values<kRows, kVectors>(columns, s, t.stride, v, v_stride, first, last, alpha, o, 0, prefetch);
    n = kVectors;
  }
  const auto& later = prefetch.LaterColumns();
  for (; n + kVectors <= whole; n += kVectors) {
    Values<kRows, kVectors>(columns, s, t.stride, v + n * lanes, v_stride, first, last, alpha,
                            o + n * lanes, n * lanes, later);
  }
  return n;
}

template <int kRows, class F>
HWY_INLINE void ValuesOfRows(const Columns& columns, const DecodeBuffers& t, std::int64_t row,
                             const float* v, std::int64_t v_stride, std::int64_t first,
                             std::int64_t last, const float* alpha, const F& prefetch) {
  // Halves down to one vector: fewer sums than the FMA units need, for the last columns only.
  constexpr int most = kValueSums / kRows < 8 ? kValueSums / kRows : 8;
  std::int64_t n = 0;
  if constexpr (most >= 8) {
    n = ValueColumns<kRows, 8>(columns, t, row, v, v_stride, first, last, alpha, n, prefetch);
  }
  if constexpr (most >= 4) {
    n = ValueColumns<kRows, 4>(columns, t, row, v, v_stride, first, last, alpha, n, prefetch);
  }
  if constexpr (most >= 2) {
    n = ValueColumns<kRows, 2>(columns, t, row, v, v_stride, first, last, alpha, n, prefetch);
  }
  n = ValueColumns<kRows, 1>(columns, t, row, v, v_stride, first, last, alpha, n, prefetch);
  if (columns.repeated != 0) {
    Values<kRows, 1>(columns, t.s + row * t.stride, t.stride, v + columns.last, v_stride, first,
                     last, alpha, t.o + row * columns.padded + n * LaneCount(), columns.last,
                     NoPrefetch());
  }
}

// The scores [keys] of one row become weights. The row sees the first `seen` keys. m, l and alpha
// as in prefill-inl.h.
inline void OnlineSoftmaxRow(float* HWY_RESTRICT s, std::int64_t seen, float& m, float& l,
                             float& alpha) {
  const D d;
  const std::int64_t lanes = LaneCount();
  std::fill_n(s + seen, hwy::RoundUpTo(seen, lanes) - seen, kMinusInf);
  V most = hn::Set(d, m);
  for (std::int64_t j = 0; j < seen; j += lanes) most = hn::Max(most, hn::Load(d, s + j));
  const float top = common::HWY_NAMESPACE::MaxLanes(d, most);
  const V base = hn::Set(d, top == kMinusInf ? 0 : top);
  alpha = hn::GetLane(common::HWY_NAMESPACE::ExpNonPositive(d, hn::Sub(hn::Set(d, m), base)));
  V sum = hn::Zero(d);
  for (std::int64_t j = 0; j < seen; j += lanes) {
    const V weight = common::HWY_NAMESPACE::ExpNonPositive(d, hn::Sub(hn::Load(d, s + j), base));
    sum = hn::Add(sum, weight);
    hn::Store(weight, d, s + j);
  }
  m = top;
  l = l * alpha + common::HWY_NAMESPACE::SumLanes(d, sum);
}

// Scores of keys [first,last) for as many rows from `row` on as go together; returns the next row.
template <class F>
HWY_INLINE std::int64_t ScoreSome(const Columns& columns, const DecodeBuffers& t, std::int64_t rows,
                                  std::int64_t row, const float* k, std::int64_t k_stride,
                                  std::int64_t first, std::int64_t last, const F& prefetch) {
  const float* q = t.q + row * columns.padded;
  float* s = t.s + row * t.stride;
  if (row + kScoreRows <= rows) {
    DotsOfRows<kScoreRows>(columns, q, k, k_stride, first, last, s, t.stride, prefetch);
    return row + kScoreRows;
  }
  if (kScoreRows > 2 && row + 2 <= rows) {
    DotsOfRows<2>(columns, q, k, k_stride, first, last, s, t.stride, prefetch);
    return row + 2;
  }
  DotsOfRows<1>(columns, q, k, k_stride, first, last, s, t.stride, prefetch);
  return row + 1;
}

// The same for sums over v of keys [first,last). Row r sees the keys in `seen`. Rows that see
// different keys are not computed together: an unseen v must not be multiplied by 0.
template <class F>
HWY_INLINE std::int64_t ValueSome(const Columns& columns, const DecodeBuffers& t, std::int64_t rows,
                                  std::int64_t row, const float* v, std::int64_t v_stride,
                                  std::int64_t first, std::int64_t last, const SeenKeys& seen,
                                  const F& prefetch) {
  static constexpr float unscaled[] = {1, 1, 1, 1};
  const float* alpha = first == 0 ? t.alpha + row : unscaled;
  first = std::max(first, seen.first(row));
  last = std::max(std::min(last, seen.end(row)), first);
  if (row + 4 <= rows && seen.end(row) == seen.end(row + 3)) {
    ValuesOfRows<4>(columns, t, row, v, v_stride, first, last, alpha, prefetch);
    return row + 4;
  }
  if (row + 2 <= rows && seen.end(row) == seen.end(row + 1)) {
    ValuesOfRows<2>(columns, t, row, v, v_stride, first, last, alpha, prefetch);
    return row + 2;
  }
  ValuesOfRows<1>(columns, t, row, v, v_stride, first, last, alpha, prefetch);
  return row + 1;
}

// The task's scratch memory, with its rows of q times the scale and nothing summed yet.
HWY_INLINE DecodeBuffers StartRows(const Job& job, const Task& task, const Columns& columns,
                                   const Columns& v_columns, float* scratch) {
  const std::int64_t rows = task.rows, head_dim = job.s.head_dim, lanes = LaneCount();
  DecodeBuffers t;
  t.stride = hwy::RoundUpTo(job.kv_block, lanes);
  t.q = scratch;
  t.o = t.q + rows * columns.padded;
  t.s = t.o + rows * v_columns.padded;
  t.m = t.s + rows * t.stride;
  t.l = t.m + rows;
  t.alpha = t.l + rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* q = t.q + r * columns.padded;
    WidenRow(job.s.type, job.row_of(job.in.stored_q, task.batch, task.kv_head, task.first_row + r),
             q, head_dim);
    for (std::int64_t c = 0; c < head_dim; ++c) q[c] *= job.scale;
    if (columns.repeated == 0) continue;
    const std::int64_t whole = columns.padded - lanes;
    std::copy_backward(q + whole, q + head_dim, q + columns.padded);
    std::fill_n(q + whole, columns.repeated, 0.0F);
  }
  std::fill_n(t.o, rows * v_columns.padded, 0.0F);
  std::fill_n(t.m, rows, kMinusInf);
  std::fill_n(t.l, rows, 0.0F);
  return t;
}

// The task's sums become rows of o, or its part of them where others have the rest of the keys.
HWY_INLINE void FinishRows(const Job& job, const Task& task, const Columns& columns,
                           const DecodeBuffers& t) {
  const std::int64_t v_dim = job.s.v_dim;
  for (std::int64_t r = 0; r < task.rows; ++r) {
    const std::int64_t row = task.first_row + r;
    float* o = t.o + r * columns.padded;
    if (columns.repeated != 0) {  // the columns of the last vector, without those it repeats
      std::copy(o + columns.last + 2 * columns.repeated, o + columns.padded,
                o + columns.last + columns.repeated);
    }
    if (task.partial != nullptr) {
      std::copy_n(o, v_dim, task.partial_sums(job) + r * v_dim);
      task.partial_max()[r] = t.m[r];
      task.partial_weight(job)[r] = t.l[r];
      continue;
    }
    const float factor = 1 / t.l[r];
    for (std::int64_t c = 0; c < v_dim; ++c) o[c] *= factor;
    if (task.visible.end_key(row) == 0) std::fill_n(o, v_dim, 0.0F);
    NarrowRow(job.s.type, o, job.row_of(job.in.stored_o, task.batch, task.kv_head, row), v_dim);
  }
}

// How a task passes over K and V, and what it prefetches meanwhile.
struct Passes {
  enum class Prefetch { none, distance, at_use, linear, pages };

  Passes(const Job& job, const Task& task, const Columns& columns) {
    const std::int64_t head_dim = job.s.head_dim;
    const std::int64_t row_bytes =
        std::max(head_dim, job.s.v_dim) * static_cast<std::int64_t>(sizeof(float));
    distance =
        std::max<std::int64_t>(kPrefetchBytes / row_bytes / kScoreKeys * kScoreKeys, kScoreKeys);
    part = job.kv_block;
    if (job.converts()) return;  // tiles lie in L1
    const bool gapless = columns.repeated == 0 && job.s.v_dim == head_dim &&
                         job.in.k.row_stride == head_dim && job.in.v.row_stride == head_dim;
    const bool long_rows = row_bytes >= kLongRow;
    if (job.decode_prefetch == DecodePrefetch::at_use) {
      prefetch = Prefetch::at_use;
    } else if (job.decode_prefetch == DecodePrefetch::pages && gapless) {
      prefetch = Prefetch::pages;
    } else if (task.rows > 1 || !long_rows) {
      const bool by_lines = gapless && long_rows && LaneCount() * sizeof(float) == 64;
      prefetch = by_lines ? Prefetch::linear : Prefetch::distance;
    }
    if (task.rows > 1) {
      part = prefetch == Prefetch::at_use ? std::max<std::int64_t>(distance / 2, kScoreKeys)
                                          : distance;
    }
    if (prefetch != Prefetch::none && task.index + 1 < job.tasks()) {
      const Task next(job, task.index + 1);
      next_task = job.in.k.matrix(next.batch, next.kv_head) + next.first_key * job.in.k.row_stride;
    }
  }

  std::int64_t distance;  // keys
  // keys, a pass. One row needs no second pass over anything. Its loads are so close together that,
  // with long rows of K and V, the hardware prefetches better alone. (Half of `distance` if rows
  // are prefetched at use: L1 is small there.)
  std::int64_t part;
  Prefetch prefetch = Prefetch::none;
  const float* next_task = nullptr;  // its first key, where this thread is likely to go on
};

// some(row, prefetch) for the rows of one part, which returns the next row: the first to come
// prefetch.
template <class Some>
HWY_INLINE void ForRows(const Passes& passes, std::int64_t rows, const TileRows& tile,
                        const Some& some) {
  std::int64_t r = 0;
  switch (passes.prefetch) {
    case Passes::Prefetch::none:
      break;
    case Passes::Prefetch::distance:
      r = some(r, DistancePrefetch{tile});
      break;
    case Passes::Prefetch::at_use:
      r = some(r, AtUsePrefetch{tile});
      break;
    case Passes::Prefetch::linear:
      r = some(r, LinearPrefetch{tile});
      break;
    case Passes::Prefetch::pages:
      r = some(r, PagesPrefetch{tile});
  }
  while (r < rows) r = some(r, NoPrefetch());
}

// One task with vectors along head_dim. `scratch` holds DecodeScratch(job) floats, aligned.
inline void Decode(const Job& job, const Task& task, float* scratch) {
  const std::int64_t rows = task.rows, head_dim = job.s.head_dim;
  const Columns columns(head_dim), v_columns(job.s.v_dim);
  float* const converted = scratch;
  const DecodeBuffers t = StartRows(job, task, columns, v_columns, scratch + ConvertedFloats(job));
  const Passes passes(job, task, columns);
  for (std::int64_t first = task.first_key; first < task.last_key; first += job.kv_block) {
    const std::int64_t keys = std::min(job.kv_block, task.last_key - first);
    const KeyRows tile = RowsOf(job, task.batch, task.kv_head, first, keys, converted);
    const float *const k = tile.k, *const v = tile.v;
    const std::int64_t k_stride = tile.k_stride, v_stride = tile.v_stride;
    const SeenKeys seen = {job, task.visible, task.first_row, first, keys};
    const TileRows k_rows = {.now = k,
                             .stride = k_stride,
                             .rows = keys,
                             .next = v,
                             .next_stride = v_stride,
                             .width = head_dim,
                             .distance = passes.distance};
    const TileRows v_rows = {
        .now = v,
        .stride = v_stride,
        .rows = keys,
        .next = first + keys < task.last_key ? k + keys * k_stride : passes.next_task,
        .next_stride = k_stride,
        .width = job.s.v_dim,
        .distance = passes.distance};
    // All rows pass over a part of the tile that stays in L1, then over the next.
    for (std::int64_t j = 0; j < keys; j += passes.part) {
      const std::int64_t end = std::min(j + passes.part, keys);
      ForRows(passes, rows, k_rows, [&](std::int64_t r, const auto& prefetch) HWY_ATTR {
        return ScoreSome(columns, t, rows, r, k, k_stride, j, end, prefetch);
      });
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      if (job.adjusts_scores()) AdjustRow(seen, r, t.s + r * t.stride);
      OnlineSoftmaxRow(t.s + r * t.stride, seen.end(r), t.m[r], t.l[r], t.alpha[r]);
    }
    for (std::int64_t j = 0; j < keys; j += passes.part) {
      const std::int64_t end = std::min(j + passes.part, keys);
      ForRows(passes, rows, v_rows, [&](std::int64_t r, const auto& prefetch) HWY_ATTR {
        return ValueSome(v_columns, t, rows, r, v, v_stride, j, end, seen, prefetch);
      });
    }
  }
  FinishRows(job, task, v_columns, t);
}

// Joins the chunks of one block of rows: with M the largest of their maxima m_c,
//   o = Σ_c exp(m_c - M)·sums_c / Σ_c exp(m_c - M)·l_c.
inline void MergeBlock(const Job& job, const Task& first) {
  const D d;
  const std::int64_t v_dim = job.s.v_dim, step = job.partial_floats();
  for (std::int64_t r = 0; r < first.rows; ++r) {
    const std::int64_t row = first.first_row + r;
    std::byte* const to = job.row_of(job.in.stored_o, first.batch, first.kv_head, row);
    if (first.visible.end_key(row) == 0) {
      std::memset(to, 0, job.s.type->bytes(v_dim));
      continue;
    }
    float* o = first.partial_sums(job) + r * v_dim;  // the first chunk's, which every row sees
    float top = kMinusInf;
    for (std::int64_t c = 0; c < job.chunks; ++c) {
      top = std::max(top, first.partial_max()[c * step + r]);
    }
    const V base = hn::Set(d, top == kMinusInf ? 0 : top);
    float weights = 0;
    for (std::int64_t c = 0; c < job.chunks; ++c) {
      // A chunk beyond what the row sees has nothing to add.
      if (first.first_key + c * first.chunk_len >= first.visible.end_key(row)) break;
      const V most = hn::Set(d, first.partial_max()[c * step + r]);
      const float factor =
          hn::GetLane(common::HWY_NAMESPACE::ExpNonPositive(d, hn::Sub(most, base)));
      weights += factor * first.partial_weight(job)[c * step + r];
      const float* sums = first.partial_sums(job) + c * step + r * v_dim;
      for (std::int64_t i = 0; i < v_dim; ++i) o[i] = factor * sums[i] + (c == 0 ? 0 : o[i]);
    }
    const float inverse = 1 / weights;
    for (std::int64_t i = 0; i < v_dim; ++i) o[i] *= inverse;
    NarrowRow(job.s.type, o, to, v_dim);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
