// GEMM, the ladder: from three loops to packed, threaded register tiles, one idea a rung. For
// reading and for `bench --ladder`; the fast variant, hwy.cpp, starts from the last rung. gemm.hpp
// lists the ideas in order, with the gain of each.
#include <algorithm>
#include <cstdint>

#include "kernels/common/ladder.hpp"
#include "kernels/gemm/ladder.hpp"
#include "kernels/gemm/unit.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/ladder.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm::ladder_steps {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using std::int64_t;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// c[i,j] = beta·c0[i,j], what the products of all rungs but the first are added to.
HWY_INLINE void StartRow(const LadderJob& job, int64_t batch, int64_t i, int64_t begin,
                         int64_t end) {
  float* c = job.c.row(batch, i);
  for (int64_t j = begin; j < end; ++j) {
    c[j] = job.g.reads_c0() ? job.g.beta * job.c0.row(batch, i)[j] : 0.0f;
  }
}

// Step 0. The definition: one dot product per element of c. Along p, b is walked down a column, one
// cache line per element; and each sum waits for the addition before it (4 cycles).
void Naive(const LadderJob& job) {
  const Gemm& g = job.g;
  for (int64_t batch = 0; batch < g.batch; ++batch) {
    const float* b = job.b_of(batch);
    for (int64_t i = 0; i < g.m; ++i) {
      const float* a = job.row_of_a(batch, i);
      float* c = job.c.row(batch, i);
      for (int64_t j = 0; j < g.n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < g.k; ++p) {
          sum += a[p * job.a.inner] * b[j * job.b.outer + p * job.b.inner];
        }
        c[j] = g.alpha * sum + (g.reads_c0() ? g.beta * job.c0.row(batch, i)[j] : 0.0f);
      }
    }
  }
}

// c[i, columns] += alpha · a[i, depth] · b[depth, columns] for one row i, in the order that walks b
// along memory: row after row of b added to a row of c, or, where b is given transposed, dots.
HWY_INLINE void AddRow(const LadderJob& job, int64_t batch, int64_t i, int64_t p_begin,
                       int64_t p_end, int64_t j_begin, int64_t j_end) {
  const float *a = job.row_of_a(batch, i), *b = job.b_of(batch);
  float* HWY_RESTRICT c = job.c.row(batch, i);
  if (job.b.outer == 1) {
    for (int64_t p = p_begin; p < p_end; ++p) {
      const float x = job.g.alpha * a[p * job.a.inner];
      const float* HWY_RESTRICT row = b + p * job.b.inner;
      for (int64_t j = j_begin; j < j_end; ++j) c[j] += x * row[j];
    }
    return;
  }
  for (int64_t j = j_begin; j < j_end; ++j) {
    float sum = 0;
    for (int64_t p = p_begin; p < p_end; ++p) sum += a[p * job.a.inner] * b[p + j * job.b.outer];
    c[j] += job.g.alpha * sum;
  }
}

// Step 1. The same products with the loops over j and p exchanged: the innermost one now runs along
// memory, and its sums are independent, so that the compiler may compute a vector of them at once.
void Reordered(const LadderJob& job) {
  const Gemm& g = job.g;
  for (int64_t batch = 0; batch < g.batch; ++batch) {
    for (int64_t i = 0; i < g.m; ++i) {
      StartRow(job, batch, i, 0, g.n);
      AddRow(job, batch, i, 0, g.k, 0, g.n);
    }
  }
}

// A block of b, 128 × 256 floats, is 128 KiB: half of the smallest L2 of today, 256 KiB. A row of
// the block of c is 1 KiB and stays in L1.
constexpr int64_t kDepth = 128;
constexpr int64_t kColumns = 256;

// body(batch, p_begin, p_end, j_begin, j_end) for each block of b; those of one j in order of p.
template <class Body>
HWY_INLINE void ForEachBlock(const Gemm& g, Body&& body) {
  for (int64_t batch = 0; batch < g.batch; ++batch) {
    for (int64_t j = 0; j < g.n; j += kColumns) {
      for (int64_t p = 0; p < g.k; p += kDepth) {
        body(batch, p, std::min(p + kDepth, g.k), j, std::min(j + kColumns, g.n));
      }
    }
  }
}

// Step 2. In blocks: b's block is read from memory once and used by all rows of a from L2, instead
// of all of b passing by once per row.
void Blocked(const LadderJob& job) {
  ForEachBlock(job.g,
               [&job](int64_t batch, int64_t p, int64_t p_end, int64_t j, int64_t j_end) HWY_ATTR {
                 for (int64_t i = 0; i < job.g.m; ++i) {
                   if (p == 0) StartRow(job, batch, i, j, j_end);
                   AddRow(job, batch, i, p, p_end, j, j_end);
                 }
               });
}

// A tile of c is kRows × kVectors vectors: 12 accumulators, more than the 4 cycles × 2 ports that
// an FMA needs to keep both ports busy, and with kVectors of b and one of a 15 of AVX2's 16
// registers.
constexpr int kRows = 6;
constexpr int kVectors = 2;

// The elements of row p of op(b) from column j on. Where b is given transposed they lie a whole row
// apart and are collected one by one.
template <class Fill>
HWY_INLINE V LoadB(const float* b, const MatrixView& side, int64_t p, int64_t j, Fill fill) {
  const D d;
  if (side.outer == 1) return hc::LoadRow(d, b + p * side.inner + j, fill);
  HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
  std::size_t count = hn::Lanes(d);
  if constexpr (std::is_same_v<Fill, hc::Part>) count = fill.count;
  for (std::size_t lane = 0; lane < count; ++lane) {
    lanes[lane] = b[(j + static_cast<int64_t>(lane)) * side.outer + p * side.inner];
  }
  return hn::Load(d, lanes);
}

// c[i…, j…] += alpha · a · b over `depth` values of p, the sums held in registers all the while.
// a_at(p, row) is an element of a, b_at(p, v) vector v of a row of b.
template <int kTileRows, int kTileVectors, class Fill, class A, class B>
HWY_INLINE void Tile(float alpha, int64_t depth, A a_at, B b_at, float* c, int64_t ldc, Fill fill) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kTileRows][kTileVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t p = 0; p < depth; ++p) {
    V b[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) b[v] = b_at(p, v);
#pragma GCC unroll 6
    for (int r = 0; r < kTileRows; ++r) {
      const V a = hn::Set(d, a_at(p, r));
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::MulAdd(a, b[v], sum[r][v]);
    }
  }
  const V factor = hn::Set(d, alpha);
#pragma GCC unroll 6
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) {
      float* to = c + r * ldc + v * lanes;
      const V before = hc::LoadRow(d, to, fill, factor);
      hc::StoreRow(hn::MulAdd(factor, sum[r][v], before), d, to, fill);
    }
  }
}

// Tiles over rows [i, i+kTileRows) and columns [j, j_end): pairs of vectors, single ones, and what
// is left of one. Rows of c were started.
template <int kTileRows, class A, class B>
HWY_INLINE void TileRow(float alpha, int64_t depth, A a_at, B b_at, float* c, int64_t ldc,
                        int64_t j, int64_t j_end) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (; j + kVectors * lanes <= j_end; j += kVectors * lanes) {
    const auto b = [=](int64_t p, int v)
                       ROOFLANE_LAMBDA { return b_at(p, j + v * lanes, hc::Whole()); };
    Tile<kTileRows, kVectors>(alpha, depth, a_at, b, c + j, ldc, hc::Whole());
  }
  for (; j + lanes <= j_end; j += lanes) {
    const auto b = [=](int64_t p, int) ROOFLANE_LAMBDA { return b_at(p, j, hc::Whole()); };
    Tile<kTileRows, 1>(alpha, depth, a_at, b, c + j, ldc, hc::Whole());
  }
  if (j < j_end) {
    const hc::Part part{static_cast<std::size_t>(j_end - j)};
    const auto b = [=](int64_t p, int) ROOFLANE_LAMBDA { return b_at(p, j, part); };
    Tile<kTileRows, 1>(alpha, depth, a_at, b, c + j, ldc, part);
  }
}

// body(i, count) for the tiles of rows [first,end), of kRows rows but for the last one.
template <class Body>
HWY_INLINE void ForEachTile(int64_t first, int64_t end, const Body& body) {
  for (int64_t i = first; i < end; i += kRows) {
    with_constant<kRows>(std::min<int64_t>(kRows, end - i),
                         [&](auto rows) HWY_ATTR { body(i, rows); });
  }
}

// Step 3. Vectors, and a tile of c in registers: c is loaded and stored once per block instead of
// once per p, each element of a serves kVectors vectors and each vector of b kRows rows.
void Vectorised(const LadderJob& job) {
  ForEachBlock(job.g, [&job](int64_t batch, int64_t p0, int64_t p_end, int64_t j,
                             int64_t j_end) HWY_ATTR {
    const float* b = job.b_of(batch);
    const auto b_at = [=, &job](int64_t p, int64_t at, auto fill)
                          ROOFLANE_LAMBDA { return LoadB(b, job.b, p0 + p, at, fill); };
    ForEachTile(0, job.g.m, [&](int64_t i, auto rows) HWY_ATTR {
      if (p0 == 0) {
        for (int r = 0; r < rows; ++r) StartRow(job, batch, i + r, j, j_end);
      }
      const float* a = job.row_of_a(batch, i);
      const int64_t outer = job.a.outer, inner = job.a.inner;
      const auto a_at = [=](int64_t p, int r)
                            ROOFLANE_LAMBDA { return a[r * outer + (p0 + p) * inner]; };
      TileRow<rows>(job.g.alpha, p_end - p0, a_at, b_at, job.c.row(batch, i), job.c.ld, j, j_end);
    });
  });
}

// The block of b as B micro-panels of kVectors vectors, each [depth, kVectors·lanes] without gaps
// and filled up with zeros.
HWY_INLINE void PackStrip(const LadderJob& job, int64_t batch, int64_t p0, int64_t p_end, int64_t j,
                          int64_t j_end, float* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  const float* b = job.b_of(batch);
  for (int64_t p = p0; p < p_end; ++p) {
    for (int64_t at = j; at < j + kVectors * lanes; ++at) {
      *to++ = at < j_end ? b[at * job.b.outer + p * job.b.inner] : 0.0f;
    }
  }
}

// Step 4. Packed: the block of b is copied into B micro-panels, in the order in which tiles read
// them, so that every load is aligned and whole, few pages are touched and a transposed b costs the
// same; kRows of a are interleaved likewise. And threaded: all threads pack the block together,
// meet, and share the rows of c. The block lies in the first thread's scratch, each thread's rows
// of a in its own.
void Packed(const LadderJob& job) {
  const Gemm& g = job.g;
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(D()));
  parallel_region(job.workers.pool, job.workers.threads, [&](const Team& team) HWY_ATTR {
    float* const packed_b = job.workers.of(0) + kRows * kDepth;
    float* const packed_a = job.workers.of(team.thread);
    const int64_t row_tiles = (g.m + kRows - 1) / kRows;
    const int64_t first = row_tiles * team.thread / team.threads * kRows;
    const int64_t end = std::min(g.m, row_tiles * (team.thread + 1) / team.threads * kRows);
    ForEachBlock(g, [&](int64_t batch, int64_t p0, int64_t p_end, int64_t j0,
                        int64_t j_end) HWY_ATTR {
      const int64_t depth = p_end - p0;
      const int64_t strips = (j_end - j0 + width - 1) / width;
      for (int64_t s = team.thread; s < strips; s += team.threads) {
        PackStrip(job, batch, p0, p_end, j0 + s * width, j_end, packed_b + s * depth * width);
      }
      team.barrier();
      ForEachTile(first, end, [&](int64_t i, auto rows) HWY_ATTR {
        const float* a = job.row_of_a(batch, i);
        for (int64_t p = 0; p < depth; ++p) {
          for (int r = 0; r < rows; ++r) {
            packed_a[p * rows + r] = a[r * job.a.outer + (p0 + p) * job.a.inner];
          }
        }
        if (p0 == 0) {
          for (int r = 0; r < rows; ++r) StartRow(job, batch, i + r, j0, j_end);
        }
        const auto a_at = [=](int64_t p, int r) ROOFLANE_LAMBDA { return packed_a[p * rows + r]; };
        for (int64_t j = j0; j < j_end; j += width) {
          const float* strip = packed_b + (j - j0) * depth;
          const auto b_at = [=](int64_t p, int64_t at, auto) ROOFLANE_LAMBDA {
            return hn::Load(D(), strip + p * width + at - j);
          };
          TileRow<rows>(g.alpha, depth, a_at, b_at, job.c.row(batch, i), job.c.ld, j,
                        std::min(j + width, j_end));
        }
      });
      team.barrier();
    });
  });
}

int64_t PackedScratch(const LadderJob& job) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(D()));
  return kRows * kDepth + kDepth * hwy::RoundUpTo(std::min(kColumns, job.g.n), kVectors * lanes);
}

// Where no product is formed, a and b are not read.
template <void (*kRun)(const LadderJob&)>
void WithProduct(const LadderJob& job) {
  if (job.g.reads_ab()) {
    kRun(job);
  } else {
    scale_only(job.g, job.c0, job.c);
  }
}

std::span<const common::Step<LadderJob>> Steps() {
  static constexpr common::Step<LadderJob> steps[] = {{WithProduct<Naive>},
                                                      {WithProduct<Reordered>},
                                                      {WithProduct<Blocked>},
                                                      {WithProduct<Vectorised>},
                                                      {WithProduct<Packed>, PackedScratch}};
  return steps;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm::ladder_steps
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "generated_catalogue.hpp"
#include "kernels/gemm/separate.hpp"

namespace rooflane::gemm {
namespace ladder_steps {

HWY_EXPORT(Steps);

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& step, const Environment& env,
                           const Operands& constants) {
  require_no_epilogue(problem, step);
  const std::int64_t target = resolve_isa(env.isa);
  return common::plan_rung(problem, step, env, constants, target,
                           ROOFLANE_HWY_FUNCTION(Steps, target)());
}

// What hwy fuses, done apart: the product at the schedule that hwy has for it, then each function
// of the epilogue. `bench --fusion` compares it with hwy, which it is without an epilogue.
std::unique_ptr<Plan> separate(const Problem& problem, const Tuning& step, const Environment& env,
                               const Operands& constants) {
  return separate_plan(problem, step, env, epilogue_function(resolve_isa(env.isa)), constants,
                       [&](const Problem& product, const Operands& of_product) {
                         return make_plan(hwy, product, {}, env, of_product);
                       });
}

}  // namespace ladder_steps

const Rung ladder[] = {
    {"naive", "three loops, one dot product per element of c", Threads::one, ladder_steps::plan},
    {"reordered", "the innermost loop runs along memory", Threads::one, ladder_steps::plan},
    {"blocked", "a block of b is used from L2 by all rows", Threads::one, ladder_steps::plan},
    {"vectorised", "vectors; a tile of c in registers", Threads::one, ladder_steps::plan},
    {"packed", "operands copied into the order of reading; threads", Threads::many,
     ladder_steps::plan},
    {"separate", "hwy's product; each function of an epilogue a pass through memory", Threads::many,
     ladder_steps::separate},
};

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
