// Attention, the ladder: from the definition with its whole score matrix to threaded tiles, one
// idea a rung. For reading and for `bench --ladder`; the fast variant, hwy.cpp, starts from the
// last rung. attention.hpp lists the ideas in order, with the gain of each.
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/attention/ladder.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/ladder.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention::ladder_steps {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using std::int64_t;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

template <class Body>
HWY_INLINE void EachHead(const Job& job, Body&& body) {
  for (int64_t batch = 0; batch < job.s.batch; ++batch) {
    for (int64_t head = 0; head < job.s.heads; ++head) body(Head(job, batch, head));
  }
}

// The score matrix of one head, [q_len,kv_len].
int64_t MatrixScratch(const Job& job) { return job.s.q_len * job.s.kv_len; }

// Step 0. The definition, head by head: all scores, softmax of each row, weights times v; each
// element of the scores and of o is one dot product, each weight one call of libm. Keys that a
// query may not see are never touched.
void Naive(const Job& job) {
  EachHead(job, [&job](const Head& h) HWY_ATTR {
    float* const scores = job.workers.of(0);
    for (int64_t i = 0; i < job.s.q_len; ++i) {
      for (int64_t j = 0; j < job.s.end_key(i); ++j) {
        float dot = 0;
        for (int64_t d = 0; d < job.s.head_dim; ++d) {
          dot += h.q[i * h.q_stride + d] * h.k[j * h.k_stride + d];
        }
        scores[i * job.s.kv_len + j] = job.scale * dot;
      }
    }
    for (int64_t i = 0; i < job.s.q_len; ++i) {
      float* const row = scores + i * job.s.kv_len;
      const int64_t visible = job.s.end_key(i);
      float max = -kInfinity;
      for (int64_t j = 0; j < visible; ++j) max = row[j] > max ? row[j] : max;
      double sum = 0;
      for (int64_t j = 0; j < visible; ++j) {
        row[j] = std::exp(row[j] - max);
        sum += row[j];
      }
      for (int64_t j = 0; j < visible; ++j) row[j] = static_cast<float>(row[j] / sum);
    }
    for (int64_t i = 0; i < job.s.q_len; ++i) {
      for (int64_t d = 0; d < job.s.head_dim; ++d) {
        float sum = 0;
        for (int64_t j = 0; j < job.s.end_key(i); ++j) {
          sum += scores[i * job.s.kv_len + j] * h.v[j * h.v_stride + d];
        }
        h.o[i * h.o_stride + d] = sum;
      }
    }
  });
}

// q·k in vectors along head_dim.
HWY_INLINE float Dot(const float* q, const float* k, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, q + i), hn::LoadU(d, k + i), sum);
  }
  if (i < n) {
    const hc::Part part{n - i};
    sum = hn::MulAdd(hc::LoadRow(d, q + i, part), hc::LoadRow(d, k + i, part), sum);
  }
  return hc::SumLanes(d, sum);
}

// o += w · v in vectors along head_dim.
HWY_INLINE void AddScaled(float w, const float* v, float* o, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const V weight = hn::Set(d, w);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::MulAdd(weight, hn::LoadU(d, v + i), hn::LoadU(d, o + i)), d, o + i);
  }
  if (i < n) {
    const hc::Part part{n - i};
    const V before = hc::LoadRow(d, o + i, part, weight);
    hc::StoreRow(hn::MulAdd(weight, hc::LoadRow(d, v + i, part, weight), before), d, o + i, part);
  }
}

// Scores become exp(score - largest); returns their sum.
HWY_INLINE double ExpOfScores(float* scores, std::size_t n) {
  const D d;
  float max = kLowest;
  for (std::size_t j = 0; j < n; ++j) max = scores[j] > max ? scores[j] : max;
  const V shift = hn::Set(d, max);
  hc::LongSum<D> sum(d);
  hc::SumRow(d, sum, n, [=](std::size_t j, auto fill) ROOFLANE_LAMBDA {
    const V score = hc::LoadRow(d, scores + j, fill, hn::Set(d, -kInfinity));
    const V weight = hc::ExpNonPositive(d, hn::Sub(score, shift));
    hc::StoreRow(weight, d, scores + j, fill);
    return weight;
  });
  return sum.Total(d);
}

// Step 1. The same matrices in vectors: along head_dim for dot products, and for o as well, by
// adding row after row of v; exp in vectors; one division per query.
void Vectorised(const Job& job) {
  const auto width = static_cast<std::size_t>(job.s.head_dim);
  EachHead(job, [&job, width](const Head& h) HWY_ATTR {
    float* const scores = job.workers.of(0);
    for (int64_t i = 0; i < job.s.q_len; ++i) {
      for (int64_t j = 0; j < job.s.end_key(i); ++j) {
        scores[i * job.s.kv_len + j] =
            job.scale * Dot(h.q + i * h.q_stride, h.k + j * h.k_stride, width);
      }
    }
    for (int64_t i = 0; i < job.s.q_len; ++i) {
      float* const weights = scores + i * job.s.kv_len;
      float* const o = h.o + i * h.o_stride;
      const int64_t visible = job.s.end_key(i);
      for (std::size_t d = 0; d < width; ++d) o[d] = 0;
      if (visible == 0) continue;
      const double sum = ExpOfScores(weights, static_cast<std::size_t>(visible));
      for (int64_t j = 0; j < visible; ++j) AddScaled(weights[j], h.v + j * h.v_stride, o, width);
      const auto factor = static_cast<float>(1 / sum);
      for (std::size_t d = 0; d < width; ++d) o[d] *= factor;
    }
  });
}

// A tile is kVectors vectors of queries, one query a lane, by kKeys keys: no sum runs across lanes.
// Four keys (or four columns of v) at a time make 8 accumulators: 4 cycles × 2 ports of an FMA.
// Scores of a tile are 16 KiB with AVX-512 and stay in L1.
constexpr int kVectors = 2;
constexpr int kAtATime = 4;
constexpr int64_t kKeys = 128;

int64_t TileQueries() { return kVectors * static_cast<int64_t>(hn::Lanes(D())); }

// One tile's memory: qᵀ and oᵀ [head_dim][queries], scores [kKeys][queries], and per query its
// maximum, its sum of weights and how many keys of the tile it sees.
struct TileMemory {
  TileMemory(float* memory, int64_t head_dim)
      : q(memory),
        o(q + head_dim * TileQueries()),
        s(o + head_dim * TileQueries()),
        max(s + kKeys * TileQueries()),
        sum(max + TileQueries()),
        visible(sum + TileQueries()) {}
  float *q, *o, *s;
  float *max, *sum, *visible;
};
int64_t TileScratch(const Job& job) { return (2 * job.s.head_dim + kKeys + 3) * TileQueries(); }

// sum[u][v] over `depth` of x(u, i) · rows[i][v], a column of the tile each: the register tile of
// both products.
template <int kColumns, class X>
HWY_INLINE void Accumulate(int64_t depth, const float* HWY_RESTRICT rows, X x,
                           V (&sum)[kColumns][kVectors]) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < depth; ++i) {
    const V row0 = hn::Load(d, rows + i * kVectors * lanes);
    const V row1 = hn::Load(d, rows + i * kVectors * lanes + lanes);
#pragma GCC unroll 4
    for (int u = 0; u < kColumns; ++u) {
      const V factor = hn::Set(d, x(u, i));
      sum[u][0] = hn::MulAdd(factor, row0, sum[u][0]);
      sum[u][1] = hn::MulAdd(factor, row1, sum[u][1]);
    }
  }
}

// Scores of kColumns keys from j on, to s.
template <int kColumns>
HWY_INLINE void Scores(const Job& job, const Head& h, const TileMemory& t, int64_t j, float* s) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kColumns][kVectors];
#pragma GCC unroll 4
  for (int u = 0; u < kColumns; ++u) sum[u][0] = sum[u][1] = hn::Zero(d);
  const float* k = h.k + j * h.k_stride;
  const int64_t stride = h.k_stride;
  Accumulate<kColumns>(
      job.s.head_dim, t.q, [=](int u, int64_t i) ROOFLANE_LAMBDA { return k[u * stride + i]; },
      sum);
  const V scale = hn::Set(d, job.scale);
#pragma GCC unroll 4
  for (int u = 0; u < kColumns; ++u) {
    hn::Store(hn::Mul(scale, sum[u][0]), d, s + u * kVectors * lanes);
    hn::Store(hn::Mul(scale, sum[u][1]), d, s + u * kVectors * lanes + lanes);
  }
}

// o[d…] += weights · v over keys [0,keys) of the tile, for kColumns columns of v from d on.
template <int kColumns>
HWY_INLINE void Values(const Head& h, const TileMemory& t, int64_t j, int64_t keys, int64_t d0) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* o = t.o + d0 * kVectors * lanes;
  V sum[kColumns][kVectors];
#pragma GCC unroll 4
  for (int u = 0; u < kColumns; ++u) {
    sum[u][0] = hn::Load(d, o + u * kVectors * lanes);
    sum[u][1] = hn::Load(d, o + u * kVectors * lanes + lanes);
  }
  const float* v = h.v + j * h.v_stride + d0;
  const int64_t stride = h.v_stride;
  Accumulate<kColumns>(
      keys, t.s, [=](int u, int64_t i) ROOFLANE_LAMBDA { return v[i * stride + u]; }, sum);
#pragma GCC unroll 4
  for (int u = 0; u < kColumns; ++u) {
    hn::Store(sum[u][0], d, o + u * kVectors * lanes);
    hn::Store(sum[u][1], d, o + u * kVectors * lanes + lanes);
  }
}

// Scores of `keys` keys become weights; maxima, sums and o of the queries are brought up
// to date. Where a query may not see a key its weight is 0, whatever k holds.
HWY_INLINE void OnlineSoftmaxTile(const Job& job, const TileMemory& t, int64_t keys) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t lane = 0; lane < kVectors * lanes; lane += lanes) {
    const V visible = hn::Load(d, t.visible + lane);
    const auto seen = [=](int64_t key) ROOFLANE_LAMBDA {
      return hn::Lt(hn::Set(d, static_cast<float>(key)), visible);
    };
    const V before = hn::Load(d, t.max + lane);
    V max = before;
    for (int64_t key = 0; key < keys; ++key) {
      const V score = hn::Load(d, t.s + key * kVectors * lanes + lane);
      // Never NaN: a NaN comes back through exp.
      max = hn::IfThenElse(hn::And(seen(key), hn::Gt(score, max)), score, max);
    }
    const V shrink = hc::ExpNonPositive(d, hn::Sub(before, max));
    V sum = hn::Mul(hn::Load(d, t.sum + lane), shrink);
    for (int64_t key = 0; key < keys; ++key) {
      float* s = t.s + key * kVectors * lanes + lane;
      const V weight =
          hn::IfThenElseZero(seen(key), hc::ExpNonPositive(d, hn::Sub(hn::Load(d, s), max)));
      hn::Store(weight, d, s);
      sum = hn::Add(sum, weight);
    }
    for (int64_t i = 0; i < job.s.head_dim; ++i) {
      float* o = t.o + i * kVectors * lanes + lane;
      hn::Store(hn::Mul(hn::Load(d, o), shrink), d, o);
    }
    hn::Store(max, d, t.max + lane);
    hn::Store(sum, d, t.sum + lane);
  }
}

// Keys that only some of the queries see: a product of v is formed for those alone, since 0 times
// an infinity or NaN is NaN.
HWY_INLINE void MaskedValues(const Job& job, const Head& h, const TileMemory& t, int64_t j,
                             int64_t first, int64_t keys) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t key = first; key < keys; ++key) {
    for (int64_t lane = 0; lane < kVectors * lanes; lane += lanes) {
      const auto seen = hn::Lt(hn::Set(d, static_cast<float>(key)), hn::Load(d, t.visible + lane));
      const V weight = hn::Load(d, t.s + key * kVectors * lanes + lane);
      for (int64_t i = 0; i < job.s.head_dim; ++i) {
        float* o = t.o + i * kVectors * lanes + lane;
        const V product = hn::Mul(weight, hn::Set(d, h.v[(j + key) * h.v_stride + i]));
        hn::Store(hn::Add(hn::Load(d, o), hn::IfThenElseZero(seen, product)), d, o);
      }
    }
  }
}

// The o of queries [i0, i0+queries), at most TileQueries() of them.
void TiledQueries(const Job& job, const Head& h, int64_t i0, int64_t queries, float* memory) {
  const Sizes& s = job.s;
  const int64_t width = TileQueries();
  const TileMemory t(memory, s.head_dim);
  for (int64_t lane = 0; lane < width; ++lane) {
    // Lanes beyond the last query repeat it; nobody reads them.
    const int64_t i = i0 + std::min(lane, queries - 1);
    for (int64_t d = 0; d < s.head_dim; ++d) {
      t.q[d * width + lane] = h.q[i * h.q_stride + d];
      t.o[d * width + lane] = 0;
    }
    t.max[lane] = kLowest;
    t.sum[lane] = 0;
  }
  const int64_t seen_by_all = s.end_key(i0);
  const int64_t seen = s.end_key(i0 + queries - 1);
  for (int64_t j = 0; j < seen; j += kKeys) {
    const int64_t keys = std::min(kKeys, seen - j);
    for (int64_t lane = 0; lane < width; ++lane) {
      const int64_t i = i0 + std::min(lane, queries - 1);
      t.visible[lane] = static_cast<float>(std::clamp<int64_t>(s.end_key(i) - j, 0, keys));
    }
    int64_t key = 0;
    for (; key + kAtATime <= keys; key += kAtATime) {
      Scores<kAtATime>(job, h, t, j + key, t.s + key * width);
    }
    for (; key < keys; ++key) Scores<1>(job, h, t, j + key, t.s + key * width);
    OnlineSoftmaxTile(job, t, keys);
    const int64_t whole = std::clamp<int64_t>(seen_by_all - j, 0, keys);
    int64_t d = 0;
    for (; d + kAtATime <= s.head_dim; d += kAtATime) Values<kAtATime>(h, t, j, whole, d);
    for (; d < s.head_dim; ++d) Values<1>(h, t, j, whole, d);
    MaskedValues(job, h, t, j, whole, keys);
  }
  for (int64_t lane = 0; lane < queries; ++lane) {
    const bool blind = s.end_key(i0 + lane) == 0;
    for (int64_t d = 0; d < s.head_dim; ++d) {
      h.o[(i0 + lane) * h.o_stride + d] = blind ? 0.0f : t.o[d * width + lane] / t.sum[lane];
    }
  }
}

// Step 2. Tiles: scores of a few queries by a few keys live in L1 and are used up at once, with the
// online softmax to join what comes tile by tile. The score matrix never exists, k and v are read
// once per tile of queries, and both products are register tiles.
void Tiled(const Job& job) {
  EachHead(job, [&job](const Head& h) HWY_ATTR {
    for (int64_t i = 0; i < job.s.q_len; i += TileQueries()) {
      TiledQueries(job, h, i, std::min(TileQueries(), job.s.q_len - i), job.workers.of(0));
    }
  });
}

// Step 3. Tiles of queries of all heads shared among threads.
void Threaded(const Job& job) {
  const int64_t width = TileQueries();
  const int64_t tiles = (job.s.q_len + width - 1) / width;
  parallel_for(job.workers.pool, job.workers.threads, job.s.batch * job.s.heads * tiles,
               [&](int64_t task, int thread) HWY_ATTR {
                 const int64_t i = task % tiles * width;
                 const int64_t head = task / tiles;
                 TiledQueries(job, Head(job, head / job.s.heads, head % job.s.heads), i,
                              std::min(width, job.s.q_len - i), job.workers.of(thread));
               });
}

std::span<const common::Step<Job>> Steps() {
  static constexpr common::Step<Job> steps[] = {{Naive, MatrixScratch},
                                                {Vectorised, MatrixScratch},
                                                {Tiled, TileScratch},
                                                {Threaded, TileScratch}};
  return steps;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention::ladder_steps
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::attention {
namespace ladder_steps {

HWY_EXPORT(Steps);

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& step, const Environment& env,
                           const Operands& constants) {
  require_no_options(problem, step);
  const std::int64_t target = resolve_isa(env.isa);
  return common::plan_rung(problem, step, env, constants, target,
                           ROOFLANE_HWY_FUNCTION(Steps, target)());
}

}  // namespace ladder_steps

const Rung ladder[] = {
    {"naive", "the whole score matrix, one dot product per element", Threads::one,
     ladder_steps::plan},
    {"vectorised", "vectors along head_dim, vector exp", Threads::one, ladder_steps::plan},
    {"tiled", "register tiles, online softmax, no score matrix", Threads::one, ladder_steps::plan},
    {"threaded", "tiles of queries shared among threads", Threads::many, ladder_steps::plan},
};

}  // namespace rooflane::attention
#endif  // HWY_ONCE
