// The unpacked and the packed (Goto) path of the hwy GEMM for the ISA target being compiled: the
// loops over nc, kc and mc around the macro-kernel of hwy_macro-inl.h, the packing of b, and the
// tasks that threads share. Which path and blocks a problem gets: hwy_candidates.cpp.
#if defined(ROOFLANE_GEMM_HWY_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_LOOPS_INL_H_
#undef ROOFLANE_GEMM_HWY_LOOPS_INL_H_
#else
#define ROOFLANE_GEMM_HWY_LOOPS_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/gemm/hwy_dot-inl.h"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_macro-inl.h"
#include "kernels/gemm/hwy_outer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// One share of the product's rows: in multiples of kMr, so that most micro-tiles are full.
inline int64_t RowOfPart(const Job& job, int64_t part) {
  const int64_t tiles = (job.rows + kMr - 1) / kMr;
  return std::min(job.rows, share(tiles, job.m_parts, part) * kMr);
}

// ---- unpacked: nothing is shared between threads -----------------------------------------------

// One share of one batch's output, and of k.
struct UnpackedShare {
  int64_t batch, row_part, col_part, k_part;
  bool more;  // the next batch comes next
};

inline void UnpackedBlocks(const Job& job, const UnpackedShare& at, float* scratch) {
  const Gemm& g = job.g;
  const MicroPanels& b_panels = job.b_panels;
  const int64_t s0 = share(b_panels.count(), job.n_parts, at.col_part);
  const int64_t s1 = share(b_panels.count(), job.n_parts, at.col_part + 1);
  const int64_t group = job.pack_b ? std::max<int64_t>(1, job.nc / b_panels.nr()) : s1 - s0;
  const int64_t first_row = RowOfPart(job, at.row_part), last_row = RowOfPart(job, at.row_part + 1);
  const int64_t k_blocks = pieces(g.k, job.kc);
  const int64_t p0 = share(k_blocks, job.k_parts, at.k_part) * job.kc;
  const int64_t p1 = std::min(g.k, share(k_blocks, job.k_parts, at.k_part + 1) * job.kc);
  const bool all_of_b = p0 + job.kc >= p1 && s1 - s0 <= group;  // packed at a time
  Block block;
  block.batch = at.batch;
  block.b = nullptr;
  if (job.k_parts > 1) {
    block.sums.data = job.shared + (at.k_part * g.batch + at.batch) * g.m * g.n;
    block.sums.ld = g.n;
  }
  for (int64_t i0 = first_row; i0 < last_row; i0 += job.mc) {
    block.i0 = i0;
    block.i1 = std::min(last_row, i0 + job.mc);
    for (int64_t p = p0; p < p1 && s0 < s1; p += job.kc) {
      block.p = p;
      block.klen = std::min(job.kc, p1 - p);
      block.first = p == p0;
      block.more = p + job.kc < p1;
      block.a = nullptr;
      block.next_block[0] = block.next_block[1] = {};
      const Side &a = job.a, &b = job.b;
      const int64_t next_p = p + job.kc;
      if (block.more) {
        const int64_t depth = std::min(job.kc, p1 - next_p);
        if (b.inner == g.n && s1 - s0 == b_panels.count()) {
          block.next_block[0] = {b.data + at.batch * b.batch_stride + next_p * g.n, depth * g.n};
        }
        if (a.inner == g.m && block.i1 - i0 == g.m) {
          block.next_block[1] = {a.data + at.batch * a.batch_stride + next_p * g.m, depth * g.m};
        }
      } else if (at.more) {
        block.next_block[0] = {b.data + (at.batch + 1) * b.batch_stride, g.k * g.n};
        block.next_block[1] = {a.data + (at.batch + 1) * a.batch_stride, g.m * g.k};
      }
      for (int64_t s = s0; s < s1; s += group) {
        const MicroPanelRange range = {b_panels, 0, s, std::min(s1, s + group)};
        if (job.pack_b) {
          float* to = scratch - b_panels.begin(s) * block.klen;
          // What was packed for the first block of rows still stands if it was all of b.
          if (i0 == first_row || !all_of_b) {
            const PhaseTimer timer(
                log_beside((block.i1 - i0) * block.klen *
                           (b_panels.begin(range.s1) - b_panels.begin(range.s0))),
                RunPhase::pack);
            PackB(b, b.data + at.batch * b.batch_stride + p * b.inner, block.klen, b_panels,
                  range.s0, range.s1, to);
          }
          block.b = to;
        }
        MacroKernel(job, range, block).Run();
      }
    }
  }
}

// Products of one B micro-panel and up to eight micro-tiles of kMr rows: so small that all that
// surrounds the micro-kernels counts.
inline bool IsOneMicroPanel(const Job& job) {
  return job.b_panels.count() == 1 && job.rows <= 8 * kMr && job.g.k <= job.kc &&
         job.m_parts == 1 && job.k_parts == 1 && !job.pack_b;
}

inline void OneMicroPanel(const Job& job, int64_t first_batch, int64_t last_batch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const Gemm& g = job.g;
  const Side &a = job.a, &b = job.b;
  const int64_t vectors = (job.cols + lanes - 1) / lanes;
  const int64_t tiles = pieces(g.m, MicroTileRows(job.mr, job.cols));
  const Shares rows(g.m, tiles);
  MicroKernelArgs t;
  t.a_outer = a.outer;
  t.a_inner = a.inner;
  t.ldb = b.inner;
  t.k = g.k;
  t.cols = g.n;
  t.ldc = job.c.ld;
  t.alpha = g.alpha;
  t.stream = job.stream_c;
  t.prefetch_step = b.inner;
  for (int64_t batch = first_batch; batch < last_batch; ++batch) {
    const Start start = StartOf(job, true, batch, 0, 0);
    t.a = a.data + batch * a.batch_stride;
    t.b = b.data + batch * b.batch_stride;
    t.prefetch = t.b + b.batch_stride;
    t.c = job.c.row(batch, 0);
    t.c0 = start.data;
    t.ldc0 = start.ld;
    t.beta = start.beta;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t count = rows.size(tile);
      MicroKernelFor<false, 1>(count, vectors)(t);
      t.a += count * a.outer;
      t.c += count * t.ldc;
      if (t.beta != 0) t.c0 += count * t.ldc0;
      t.prefetch += 16;
    }
    job.finish({batch, 0, 0, g.m, g.n});  // all of it is in L1
  }
}

inline void UnpackedTask(const Job& job, int64_t task, float* scratch) {
  UnpackedShare at;
  at.k_part = take_digit(task, job.k_parts);
  at.col_part = take_digit(task, job.n_parts);
  at.row_part = take_digit(task, job.m_parts);
  const Shares batches(job.g.batch, job.batch_parts);
  const int64_t end = batches.begin(task + 1);
  if (IsOneMicroPanel(job)) {
    OneMicroPanel(job, batches.begin(task), end);
    if (job.stream_c) hwy::FlushStream();
    return;
  }
  for (at.batch = batches.begin(task); at.batch < end; ++at.batch) {
    at.more = at.batch + 1 < end;
    UnpackedBlocks(job, at, scratch);
  }
  if (job.stream_c) hwy::FlushStream();
}

// c = alpha · (the sums of all parts of k) + beta · c0, for columns [j0,j1) of one row.
inline void AddParts(const Job& job, int64_t row, int64_t j0, int64_t j1) {
  const Gemm& g = job.g;
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t batch = row / g.m, i = row % g.m;
  const Start start = StartOf(job, true, batch, i, 0);
  const float* sums = job.shared + row * g.n;
  float* c = job.c.row(batch, i);
  for (int64_t j = j0; j < j1; j += lanes) {
    const Part part(d, static_cast<std::size_t>(std::min(lanes, j1 - j)));
    VF sum = part.Load(d, sums + j);
    for (int64_t q = 1; q < job.k_parts; ++q) {
      sum = hn::Add(sum, part.Load(d, sums + q * g.batch * g.m * g.n + j));
    }
    sum = hn::Mul(hn::Set(d, g.alpha), sum);
    if (start.beta != 0) {
      sum = hn::MulAdd(hn::Set(d, start.beta), part.Load(d, start.data + j), sum);
    }
    part.Store(sum, d, c + j);
  }
  job.finish({batch, i, j0, 1, j1 - j0});
}

// A thread's share of adding up: 64 columns of a row at a time, four lines of c.
inline void AddShare(const Job& job, const Team& team) {
  constexpr int64_t width = 64;
  const Gemm& g = job.g;
  const int64_t pieces = (g.n + width - 1) / width;
  const Shares shares(g.batch * g.m * pieces, team.threads);
  for (int64_t at = shares.begin(team.thread); at < shares.begin(team.thread + 1); ++at) {
    const int64_t j = at % pieces * width;
    AddParts(job, at / pieces, j, std::min(g.n, j + width));
  }
}

inline void RunUnpacked(const Job& job) {
  const int64_t tasks = job.batch_parts * job.m_parts * job.n_parts * job.k_parts;
  if (tasks == 1) return UnpackedTask(job, 0, job.scratch);
  const auto run = [&](int64_t task, int thread) {
    UnpackedTask(job, task, job.scratch + thread * job.scratch_floats);
  };
  if (job.k_parts == 1) {
    const auto hand_out = job.fixed ? parallel_for_static : parallel_for;
    return hand_out(job.pool, job.threads, tasks, run);
  }
  StaticChunks chunks(job.fixed ? job.threads : 1, tasks);
  parallel_region(job.pool, job.threads, [&](const Team& team) {
    chunks.work(team.thread, [&](int64_t task) { run(task, team.thread); });
    team.barrier();
    const PhaseTimer timer(RunPhase::reduce);
    AddShare(job, team);
  });
}

// ---- packed (Goto): b is packed once for all threads -------------------------------------------

// The part of b that is packed at a time.
struct Phase {
  int64_t batch0, batches;
  int64_t j0, width;
  int64_t p0, depth;
};

// How the packing of a phase is shared: up to 8 micro-panels a task, which amortise the hand-out,
// fewer where threads would go without, and then in pieces of a block of k.
struct PackShares {
  PackShares(const Job& job, const Phase& phase)
      : b_panels(AllOf(phase.width)), blocks((phase.depth + job.kc - 1) / job.kc) {
    const int64_t all = phase.batches * blocks * b_panels.count();
    at_once = std::clamp<int64_t>(all / (2 * job.threads), 1, 8);
    panel_tasks = (b_panels.count() + at_once - 1) / at_once;
    pieces = std::clamp<int64_t>(job.threads / all, 1, (std::min(job.kc, phase.depth) + 63) / 64);
    tasks = phase.batches * blocks * panel_tasks * pieces;
  }

  MicroPanels b_panels;
  int64_t blocks, at_once, panel_tasks, pieces, tasks;
};

inline void PackTask(const Job& job, const Phase& phase, const PackShares& shares, int64_t task) {
  const MicroPanels& b_panels = shares.b_panels;
  const int64_t piece = take_digit(task, shares.pieces);
  const int64_t first = take_digit(task, shares.panel_tasks) * shares.at_once;
  const int64_t p = take_digit(task, shares.blocks) * job.kc;
  const int64_t batch = task;
  const int64_t klen = std::min(job.kc, phase.depth - p);
  // Of a micro-panel's [klen][width] the rows from q on, where there are pieces: whole lines of a
  // transposed b.
  const int64_t q = std::min(klen, 16 * share((klen + 15) / 16, shares.pieces, piece));
  const int64_t q_end = std::min(klen, 16 * share((klen + 15) / 16, shares.pieces, piece + 1));
  if (q == q_end) return;
  const int64_t skipped = (klen - (q_end - q)) * b_panels.begin(first) + q * b_panels.width(first);
  const float* from = job.b.data + (phase.batch0 + batch) * job.b.batch_stride +
                      (phase.p0 + p + q) * job.b.inner + phase.j0 * job.b.outer;
  PackB(job.b, from, q_end - q, b_panels, first, std::min(b_panels.count(), first + shares.at_once),
        job.shared + batch * phase.depth * phase.width + p * phase.width + skipped);
}

// The tasks of a phase's packing that are left, `next` on.
inline void PackPhase(const Job& job, const Phase& phase, std::atomic<int64_t>& next) {
  const PhaseTimer timer(RunPhase::pack);
  const PackShares shares(job, phase);
  for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < shares.tasks;) {
    PackTask(job, phase, shares, t);
  }
}

// Stores sums at c's row `row` and column `col`; with an epilogue some rows of c at a time, as
// many as L1 holds.
inline void StoreTransposed(const Job& job, const Phase& phase, int64_t batch,
                            const TransposedSums& sums, int64_t row, int64_t col) {
  const bool finishes = job.epilogue != nullptr && phase.p0 + phase.depth == job.g.k;
  const int64_t group = finishes ? 32 : sums.cols;
  for (int64_t i = 0; i < sums.cols; i += group) {
    const int64_t rows = std::min(group, sums.cols - i);
    TransposeIntoC(job, phase.p0 == 0, batch, row + i, col,
                   {.data = sums.data + i, .ld = sums.ld, .rows = sums.rows, .cols = rows});
    if (finishes) job.finish({batch, row + i, col, rows, sums.rows});
  }
}

// One share of a phase's output: all of the phase's depth, a block of a at a time.
inline void ComputeTask(const Job& job, const Phase& phase, int64_t task, float* scratch) {
  const Gemm& g = job.g;
  const int64_t per_batch = job.m_parts * job.n_parts;
  const int64_t batch = task / per_batch;
  const int64_t row_part = task % per_batch / job.n_parts;
  const int64_t col_part = task % job.n_parts;
  const MicroPanels b_panels = AllOf(phase.width);
  const MicroPanelRange range = {b_panels, phase.j0, share(b_panels.count(), job.n_parts, col_part),
                                 share(b_panels.count(), job.n_parts, col_part + 1)};
  const int64_t first_row = RowOfPart(job, row_part), last_row = RowOfPart(job, row_part + 1);
  const float* b = job.prepacked != nullptr ? job.prepacked + (phase.batch0 + batch) * g.k * g.n
                                            : job.shared + batch * phase.depth * phase.width;
  Block block;
  block.batch = phase.batch0 + batch;
  const int64_t cols = b_panels.begin(range.s1) - b_panels.begin(range.s0);
  if (job.transposed) {
    const int64_t ld = (cols + 15) / 16 * 16;
    block.sums = {scratch + job.scratch_a, ld, 0, phase.j0 + b_panels.begin(range.s0)};
  }
  for (int64_t i0 = first_row; i0 < last_row; i0 += job.mc) {
    block.i0 = i0;
    block.i1 = std::min(last_row, i0 + job.mc);
    block.sums.i0 = i0;
    for (int64_t p = 0; p < phase.depth; p += job.kc) {
      block.p = phase.p0 + p;
      block.klen = std::min(job.kc, phase.depth - p);
      block.first = job.transposed ? p == 0 : block.p == 0;
      block.more = false;
      block.b = b + p * phase.width;
      block.a = job.pack_a ? scratch : nullptr;
      block.pack_into = job.pack_a && !job.order ? scratch : nullptr;
      if (job.pack_a && job.order) {
        const PhaseTimer timer(log_beside((block.i1 - i0) * block.klen * cols), RunPhase::pack);
        PackBlockOfA(job, block, scratch);
      }
      MacroKernel(job, range, block).Run();
    }
    if (!job.transposed) continue;
    const Sums& sums = block.sums;
    const PhaseTimer timer(log_beside((block.i1 - i0) * phase.depth * cols), RunPhase::store);
    StoreTransposed(job, phase, block.batch,
                    {.data = sums.data, .ld = sums.ld, .rows = block.i1 - i0, .cols = cols},
                    sums.j0, i0);
  }
  if (job.stream_c) hwy::FlushStream();
}

// The tasks of a packed run that threads take: of the phase's packing, and of what follows. Each is
// begun anew while nobody uses it: between the two barriers of a phase the other one is in use.
struct PackedTasks {
  explicit PackedTasks(const Job& job)
      : compute(job.fixed ? job.threads : 1, job.batch_group * job.m_parts * job.n_parts) {}
  alignas(64) std::atomic<int64_t> pack{0};
  StaticChunks compute;
};

inline void PackedWorker(const Job& job, PackedTasks& tasks, const Team& team) {
  const Gemm& g = job.g;
  float* scratch = job.scratch + team.thread * job.scratch_floats;
  for (int64_t j0 = 0; j0 < job.cols; j0 += job.nc) {
    for (int64_t batch0 = 0; batch0 < g.batch; batch0 += job.batch_group) {
      for (int64_t p0 = 0; p0 < g.k; p0 += job.kb) {
        const Phase phase = {batch0, std::min(job.batch_group, g.batch - batch0),
                             j0,     std::min(job.nc, job.cols - j0),
                             p0,     std::min(job.kb, g.k - p0)};
        if (job.prepacked == nullptr) {
          PackPhase(job, phase, tasks.pack);
          team.barrier();
          if (team.thread == 0) tasks.pack.store(0, std::memory_order_relaxed);
        }
        const int64_t parts = job.m_parts * job.n_parts, last = phase.batches * parts;
        PhaseLog* const log = log_beside(job.rows * phase.width * phase.depth / parts);
        tasks.compute.work(team.thread, [&](int64_t task) {
          if (task >= last) return;
          const PhaseTimer timer(log, RunPhase::compute);
          ComputeTask(job, phase, task, scratch);
        });
        team.barrier();
        if (team.thread == 0) tasks.compute.begin();
        // With b packed beforehand no other barrier keeps the next phase off the tasks.
        if (job.prepacked != nullptr) team.barrier();
      }
    }
  }
}

inline void RunPacked(const Job& job) {
  PackedTasks tasks(job);
  parallel_region(job.pool, job.threads, [&](const Team& team) { PackedWorker(job, tasks, team); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
