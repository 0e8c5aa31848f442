// The paths of the hwy GEMM for the ISA target being compiled: blocking, packing and the sharing of
// work between threads around the tiles of hwy_tiles-inl.h. Which path a problem takes is decided
// in hwy.cpp.
#if defined(ROOFLANE_GEMM_HWY_PATHS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_PATHS_INL_H_
#undef ROOFLANE_GEMM_HWY_PATHS_INL_H_
#else
#define ROOFLANE_GEMM_HWY_PATHS_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

inline TileShape Shape() { return {static_cast<int64_t>(hn::Lanes(DF())), kMr, kNv}; }

// Where c starts from: beta·c0 for the first block of k, what earlier blocks left in c afterwards.
struct Start {
  const float* data;
  int64_t ld;
  float beta;
};
inline Start StartOf(const Job& job, bool first_block, int64_t batch, int64_t row, int64_t col) {
  if (!first_block) return {job.c.row(batch, row) + col, job.c.ld, 1.0f};
  if (!job.g.reads_c0()) return {nullptr, 0, 0.0f};
  return {job.c0.row(batch, row) + col, job.c0.ld, job.g.beta};
}

// ---- direct: tiles read a and b where they lie -------------------------------------------------

inline void DirectTask(const Job& job, int64_t task) {
  const Gemm& g = job.g;
  const TileShape shape = Shape();
  const Strips strips(g.n, shape);
  const int64_t per_batch = job.row_parts * job.col_parts;
  const int64_t batch = task / per_batch;
  const int64_t row_part = task % per_batch / job.col_parts;
  const int64_t col_part = task % job.col_parts;
  const int64_t tiles = (g.m + kMr - 1) / kMr;
  const float* a = job.a.data + batch * job.a.batch_stride;
  const float* b = job.b.data + batch * job.b.batch_stride;
  TileArgs t;
  t.a_outer = job.a.outer;
  t.a_inner = job.a.inner;
  t.ldb = job.b.inner;
  t.k = g.k;
  t.ldc = job.c.ld;
  t.alpha = g.alpha;
  for (int64_t s = share(strips.count(), job.col_parts, col_part);
       s < share(strips.count(), job.col_parts, col_part + 1); ++s) {
    const int64_t j = strips.begin(s);
    const int64_t vectors = (strips.width(s) + shape.lanes - 1) / shape.lanes;
    t.cols = strips.width(s);
    t.b = b + j;
    for (int64_t tile = share(tiles, job.row_parts, row_part);
         tile < share(tiles, job.row_parts, row_part + 1); ++tile) {
      const int64_t i = share(g.m, tiles, tile);
      const Start start = StartOf(job, true, batch, i, j);
      t.a = a + i * job.a.outer;
      t.c0 = start.data;
      t.ldc0 = start.ld;
      t.beta = start.beta;
      t.c = job.c.row(batch, i) + j;
      TileFor<false>(share(g.m, tiles, tile + 1) - i, vectors)(t);
    }
  }
}

inline void RunDirect(const Job& job) {
  parallel_for(job.pool, job.threads, job.g.batch * job.row_parts * job.col_parts,
               [&](int64_t task, int) { DirectTask(job, task); });
}

// ---- packed: register tiles over packed blocks -------------------------------------------------

// A packed block of b, klen × width: strip after strip, each [klen][strip width].
inline void PackStrips(const Side& b, const float* from, int64_t klen, const Strips& strips,
                       int64_t first, int64_t last, float* to) {
  PackPanels(
      from, b, klen, first, last, [&](int64_t s) { return strips.begin(s); }, to);
}

// What all threads of a packed run share. Each counter is reset while nobody uses it: between the
// two barriers of a phase the other one is in use.
struct Counters {
  alignas(64) std::atomic<int64_t> pack{0};
  alignas(64) std::atomic<int64_t> compute{0};
};

// The part of b that is packed at a time.
struct Phase {
  int64_t batch0, batches;
  int64_t j0, width;
  int64_t p0, depth;
};

// Strips of b packed per task: enough to amortise the hand-out, few enough to share out evenly.
constexpr int64_t kStripsPerTask = 8;

inline void PackTask(const Job& job, const Phase& phase, int64_t task) {
  const Strips strips(phase.width, Shape());
  const int64_t strip_tasks = (strips.count() + kStripsPerTask - 1) / kStripsPerTask;
  const int64_t blocks = (phase.depth + job.kc - 1) / job.kc;
  const int64_t batch = task / (blocks * strip_tasks);
  const int64_t p = task / strip_tasks % blocks * job.kc;
  const int64_t klen = std::min(job.kc, phase.depth - p);
  const int64_t first = task % strip_tasks * kStripsPerTask;
  const float* from = job.b.data + (phase.batch0 + batch) * job.b.batch_stride +
                      (phase.p0 + p) * job.b.inner + phase.j0 * job.b.outer;
  PackStrips(job.b, from, klen, strips, first, std::min(strips.count(), first + kStripsPerTask),
             job.shared + batch * phase.depth * phase.width + p * phase.width);
}

// Rows [i0,i1) × strips [s0,s1) of one block of k, with a packed or in place.
struct BlockArgs {
  int64_t batch, i0, i1, p, klen;
  const float* b;  // the packed block, its first strip at 0
  const float* a;  // packed panels of rows i0… or null
};

inline void BlockTimesStrips(const Job& job, const Phase& phase, const Strips& strips, int64_t s0,
                             int64_t s1, const BlockArgs& block) {
  const TileShape shape = Shape();
  const int64_t rows = block.i1 - block.i0;
  const int64_t tiles = (rows + kMr - 1) / kMr;
  TileArgs t;
  t.a_outer = job.a.outer;
  t.a_inner = job.a.inner;
  t.k = block.klen;
  t.ldc = job.c.ld;
  t.alpha = job.g.alpha;
  const float* a = job.a.data + block.batch * job.a.batch_stride + block.p * job.a.inner;
  for (int64_t s = s0; s < s1; ++s) {
    const int64_t width = strips.width(s);
    const int64_t vectors = (width + shape.lanes - 1) / shape.lanes;
    const int64_t j = phase.j0 + strips.begin(s);
    t.b = block.b + strips.begin(s) * block.klen;
    t.ldb = width;
    t.cols = width;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t r = share(rows, tiles, tile);
      const int64_t count = share(rows, tiles, tile + 1) - r;
      const int64_t i = block.i0 + r;
      const Start start = StartOf(job, block.p == 0, block.batch, i, j);
      t.c0 = start.data;
      t.ldc0 = start.ld;
      t.beta = start.beta;
      t.c = job.c.row(block.batch, i) + j;
      if (block.a != nullptr) {
        t.a = block.a + r * block.klen;
        TileFor<true>(count, vectors)(t);
      } else {
        t.a = a + i * job.a.outer;
        TileFor<false>(count, vectors)(t);
      }
    }
  }
}

// One share of a phase's output: all of the phase's depth, a block of a at a time.
inline void ComputeTask(const Job& job, const Phase& phase, int64_t task, float* scratch) {
  const Gemm& g = job.g;
  const Strips strips(phase.width, Shape());
  const int64_t per_batch = job.row_parts * job.col_parts;
  const int64_t batch = task / per_batch;
  const int64_t row_part = task % per_batch / job.col_parts;
  const int64_t col_part = task % job.col_parts;
  const int64_t s0 = share(strips.count(), job.col_parts, col_part);
  const int64_t s1 = share(strips.count(), job.col_parts, col_part + 1);
  // Shares of whole tiles, so that only the last share has short ones.
  const int64_t all_tiles = (g.m + kMr - 1) / kMr;
  const int64_t first_row = std::min(g.m, share(all_tiles, job.row_parts, row_part) * kMr);
  const int64_t last_row = std::min(g.m, share(all_tiles, job.row_parts, row_part + 1) * kMr);
  const float* b = job.prepacked != nullptr ? job.prepacked + (phase.batch0 + batch) * g.k * g.n
                                            : job.shared + batch * phase.depth * phase.width;
  for (int64_t i0 = first_row; i0 < last_row; i0 += job.mc) {
    const int64_t i1 = std::min(last_row, i0 + job.mc);
    for (int64_t p = 0; p < phase.depth; p += job.kc) {
      BlockArgs block;
      block.batch = phase.batch0 + batch;
      block.i0 = i0;
      block.i1 = i1;
      block.p = phase.p0 + p;
      block.klen = std::min(job.kc, phase.depth - p);
      block.b = b + p * phase.width;
      block.a = nullptr;
      if (job.pack_a) {
        const int64_t tiles = (i1 - i0 + kMr - 1) / kMr;
        const float* from = job.a.data + block.batch * job.a.batch_stride + block.p * job.a.inner;
        // 16 panels of rows at a time: as many write streams as L1 keeps apart.
        for (int64_t tile = 0; tile < tiles; tile += 16) {
          PackPanels(
              from + i0 * job.a.outer, job.a, block.klen, tile, std::min(tiles, tile + 16),
              [&](int64_t q) { return share(i1 - i0, tiles, q); }, scratch);
        }
        block.a = scratch;
      }
      BlockTimesStrips(job, phase, strips, s0, s1, block);
    }
  }
}

inline void PackedWorker(const Job& job, Counters& counters, const Team& team) {
  const Gemm& g = job.g;
  float* scratch = job.scratch + team.thread * job.scratch_floats;
  for (int64_t j0 = 0; j0 < g.n; j0 += job.nc) {
    for (int64_t batch0 = 0; batch0 < g.batch; batch0 += job.batch_group) {
      for (int64_t p0 = 0; p0 < g.k; p0 += job.kb) {
        const Phase phase = {batch0, std::min(job.batch_group, g.batch - batch0),
                             j0,     std::min(job.nc, g.n - j0),
                             p0,     std::min(job.kb, g.k - p0)};
        if (job.prepacked == nullptr) {
          const int64_t strips = Strips(phase.width, Shape()).count();
          const int64_t tasks = phase.batches * ((phase.depth + job.kc - 1) / job.kc) *
                                ((strips + kStripsPerTask - 1) / kStripsPerTask);
          for (int64_t t; (t = counters.pack.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
            PackTask(job, phase, t);
          }
          team.barrier();
          if (team.thread == 0) counters.pack.store(0, std::memory_order_relaxed);
        }
        const int64_t tasks = phase.batches * job.row_parts * job.col_parts;
        for (int64_t t; (t = counters.compute.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
          ComputeTask(job, phase, t, scratch);
        }
        team.barrier();
        if (team.thread == 0) counters.compute.store(0, std::memory_order_relaxed);
        // With b packed beforehand no other barrier keeps the next phase off the counter.
        if (job.prepacked != nullptr) team.barrier();
      }
    }
  }
}

inline void RunPacked(const Job& job) {
  Counters counters;
  parallel_region(job.pool, job.threads,
                  [&](const Team& team) { PackedWorker(job, counters, team); });
}

// ---- stream: few rows against a wide side that is contiguous across k --------------------------

// c(f, w) over the wide side's columns, job.nc at a time and job.kc deep: the wide side is read
// once, in runs of nc floats, while few × nc sums stay in L1. Where the wide side is a (flip), the
// sums are a transposed block of c, kept in scratch and turned at the end.
inline void StreamTask(const Job& job, const Side& few, const Side& wide, int64_t few_count,
                       int64_t wide_count, int64_t task, float* scratch) {
  const Gemm& g = job.g;
  const TileShape shape = Shape();
  const int64_t parts = (wide_count + job.nc - 1) / job.nc;
  const int64_t batch = task / parts;
  const int64_t w0 = task % parts * job.nc;
  const int64_t width = std::min(job.nc, wide_count - w0);
  const Strips strips(width, shape);
  const int64_t tiles = (few_count + kMr - 1) / kMr;
  const float* few_data = few.data + batch * few.batch_stride;
  const float* wide_data = wide.data + batch * wide.batch_stride + w0;
  TileArgs t;
  t.a_outer = few.outer;
  t.a_inner = few.inner;
  t.ldb = wide.inner;
  t.ldc = job.flip ? job.nc : job.c.ld;
  t.alpha = job.flip ? 1.0f : g.alpha;
  for (int64_t p = 0; p < g.k; p += job.kc) {
    t.k = std::min(job.kc, g.k - p);
    for (int64_t s = 0; s < strips.count(); ++s) {
      const int64_t j = strips.begin(s);
      const int64_t vectors = (strips.width(s) + shape.lanes - 1) / shape.lanes;
      t.b = wide_data + p * wide.inner + j;
      t.cols = strips.width(s);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t f = share(few_count, tiles, tile);
        t.a = few_data + f * few.outer + p * few.inner;
        Start start;
        if (job.flip) {
          t.c = scratch + f * job.nc + j;
          start = {t.c, job.nc, p == 0 ? 0.0f : 1.0f};
        } else {
          t.c = job.c.row(batch, f) + w0 + j;
          start = StartOf(job, p == 0, batch, f, w0 + j);
        }
        t.c0 = start.data;
        t.ldc0 = start.ld;
        t.beta = start.beta;
        TileFor<false>(share(few_count, tiles, tile + 1) - f, vectors)(t);
      }
    }
  }
  if (!job.flip) return;
  for (int64_t w = 0; w < width; ++w) {
    float* c = job.c.row(batch, w0 + w);
    const float* c0 = g.reads_c0() ? job.c0.row(batch, w0 + w) : nullptr;
    for (int64_t f = 0; f < few_count; ++f) {
      const float v = g.alpha * scratch[f * job.nc + w];
      c[f] = c0 != nullptr ? v + g.beta * c0[f] : v;
    }
  }
}

inline void RunStream(const Job& job) {
  const int64_t few_count = job.flip ? job.g.n : job.g.m;
  const int64_t wide_count = job.flip ? job.g.m : job.g.n;
  const Side& few = job.flip ? job.b : job.a;
  const Side& wide = job.flip ? job.a : job.b;
  const int64_t tasks = job.g.batch * ((wide_count + job.nc - 1) / job.nc);
  parallel_for(job.pool, job.threads, tasks, [&](int64_t task, int thread) {
    StreamTask(job, few, wide, few_count, wide_count, task,
               job.scratch + thread * job.scratch_floats);
  });
}

// ---- dot: few rows against a long side that is contiguous along k ------------------------------

using DotFunction = void (*)(const DotArgs&);

// Most rows of the few side in one dot tile; for each the most rows of the long side, so that the
// accumulators fill the register file as in the register tile.
constexpr int kDotFew = 4;
constexpr int DotMany(int few) { return std::min(8, kMr * kNv / few); }

template <int kFew, std::size_t... M>
constexpr std::array<DotFunction, sizeof...(M)> MakeDots(std::index_sequence<M...>) {
  return {&Dot<kFew, static_cast<int>(M) + 1>::Compute...};
}
template <int kFew>
DotFunction DotOf(int64_t many) {
  static constexpr auto dots = MakeDots<kFew>(std::make_index_sequence<DotMany(kFew)>());
  return dots[static_cast<std::size_t>(many - 1)];
}
inline DotFunction DotFor(int64_t few, int64_t many) {
  switch (few) {
    case 1:
      return DotOf<1>(many);
    case 2:
      return DotOf<2>(many);
    case 3:
      return DotOf<3>(many);
    default:
      return DotOf<4>(many);
  }
}

// job.nc rows of the long side, job.kc deep at a time: each row of the long side is read once, in
// runs of kc floats; the few side's block stays in L2.
inline void DotTask(const Job& job, const Side& few, const Side& many, int64_t few_count,
                    int64_t many_count, int64_t task, float* scratch) {
  const Gemm& g = job.g;
  const int64_t parts = (many_count + job.nc - 1) / job.nc;
  const int64_t batch = task / parts;
  const int64_t w_begin = task % parts * job.nc;
  const int64_t w_end = std::min(many_count, w_begin + job.nc);
  const int64_t few_tiles = (few_count + kDotFew - 1) / kDotFew;
  const int64_t many_tile = DotMany(static_cast<int>((few_count + few_tiles - 1) / few_tiles));
  const int64_t many_tiles = (w_end - w_begin + many_tile - 1) / many_tile;
  DotArgs t;
  t.many_ld = many.outer;
  t.c_few = job.flip ? 1 : job.c.ld;
  t.c_many = job.flip ? job.c.ld : 1;
  t.alpha = g.alpha;
  for (int64_t p = 0; p < g.k; p += job.kc) {
    t.k = std::min(job.kc, g.k - p);
    const float* few_data = few.data + batch * few.batch_stride + p * few.inner;
    t.few_ld = few.outer;
    if (few.inner != 1) {
      PackAlongK(few_data, few, few_count, t.k, scratch, t.k);
      few_data = scratch;
      t.few_ld = t.k;
    }
    const float* many_data = many.data + batch * many.batch_stride + p;
    for (int64_t mt = 0; mt < many_tiles; ++mt) {
      const int64_t w = w_begin + share(w_end - w_begin, many_tiles, mt);
      const int64_t count = w_begin + share(w_end - w_begin, many_tiles, mt + 1) - w;
      t.many = many_data + w * many.outer;
      for (int64_t ft = 0; ft < few_tiles; ++ft) {
        const int64_t f = share(few_count, few_tiles, ft);
        const int64_t row = job.flip ? w : f;
        const int64_t col = job.flip ? f : w;
        const Start start = StartOf(job, p == 0, batch, row, col);
        t.few = few_data + f * t.few_ld;
        t.c = job.c.row(batch, row) + col;
        t.c0 = start.data;
        t.c0_few = job.flip ? 1 : start.ld;
        t.c0_many = job.flip ? start.ld : 1;
        t.beta = start.beta;
        DotFor(share(few_count, few_tiles, ft + 1) - f, count)(t);
      }
    }
  }
}

inline void RunDot(const Job& job) {
  const int64_t few_count = job.flip ? job.g.n : job.g.m;
  const int64_t many_count = job.flip ? job.g.m : job.g.n;
  const Side& few = job.flip ? job.b : job.a;
  const Side& many = job.flip ? job.a : job.b;
  const int64_t tasks = job.g.batch * ((many_count + job.nc - 1) / job.nc);
  parallel_for(job.pool, job.threads, tasks, [&](int64_t task, int thread) {
    DotTask(job, few, many, few_count, many_count, task, job.scratch + thread * job.scratch_floats);
  });
}

// ---- exported ----------------------------------------------------------------------------------

inline void Run(const Job& job) {
  switch (job.path) {
    case Path::scale:
      scale_only(job.g, job.c0, job.c);
      break;
    case Path::dot:
      RunDot(job);
      break;
    case Path::stream:
      RunStream(job);
      break;
    case Path::direct:
      RunDirect(job);
      break;
    case Path::packed:
      RunPacked(job);
      break;
  }
}

// b of prepack=1, [batch] times k·n floats: rows [n,k] where b is the side with few rows, else
// blocks of kc rows as the packed path reads them.
inline void Pack(const Job& job, const Side& b, float* to) {
  const Gemm& g = job.g;
  const Strips strips(g.n, Shape());
  const int64_t blocks = job.flip ? 1 : (g.k + job.kc - 1) / job.kc;
  parallel_for(job.pool, job.threads, g.batch * blocks, [&](int64_t task, int) {
    const int64_t batch = task / blocks;
    const float* from = b.data + batch * b.batch_stride;
    float* out = to + batch * g.k * g.n;
    if (job.flip) {
      PackAlongK(from, b, g.n, g.k, out, g.k);
      return;
    }
    const int64_t p = task % blocks * job.kc;
    PackStrips(b, from + p * b.inner, std::min(job.kc, g.k - p), strips, 0, strips.count(),
               out + p * g.n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
