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

// pack_b: the part of b that is packed after micro-panels up to `s` of the block of k at p, if it
// is not transposed meanwhile: the next ones of [s0,s1), or the first of the next block before p1.
inline PrefetchRows PackedNext(const Job& job, int64_t batch, int64_t s0, int64_t s1, int64_t group,
                               int64_t s, int64_t p, int64_t p1) {
  if (s >= s1) s = s0, p += job.kc;
  if (p >= p1 || job.b.outer != 1) return {};
  const int64_t begin = job.b_panels.begin(s), end = job.b_panels.begin(std::min(s1, s + group));
  return {job.b.f32() + batch * job.b.batch_stride + p * job.b.inner + begin, job.b.inner,
          end - begin};
}

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
  Block block = {.batch = at.batch};
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
      block.next_block[0] = block.next_block[1] = {};
      const MatrixView &a = job.a, &b = job.b;
      const int64_t next_p = p + job.kc;
      if (next_p < p1) {
        const int64_t depth = std::min(job.kc, p1 - next_p);
        if (!job.pack_b && b.inner == g.n && s1 - s0 == b_panels.count()) {
          block.next_block[0] = {b.f32() + at.batch * b.batch_stride + next_p * g.n, depth * g.n};
        }
        if (a.inner == g.m && block.i1 - i0 == g.m && s1 - s0 <= group) {
          block.next_block[1] = {a.f32() + at.batch * a.batch_stride + next_p * g.m, depth * g.m};
        }
      } else if (at.more && s1 - s0 <= group) {
        block.next_block[0] = {b.f32() + (at.batch + 1) * b.batch_stride, g.k * g.n};
        block.next_block[1] = {a.f32() + (at.batch + 1) * a.batch_stride, g.m * g.k};
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
            PackB(b, b.f32() + at.batch * b.batch_stride + p * b.inner, block.klen, b_panels,
                  range.s0, range.s1, to);
          }
          block.b = to;
          block.next_rows = PackedNext(job, at.batch, s0, s1, group, range.s1, p, p1);
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
  const MatrixView &a = job.a, &b = job.b;
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
  t.prefetch_step = b.inner;
  for (int64_t batch = first_batch; batch < last_batch; ++batch) {
    const Start start = StartOf(job, true, batch, 0, 0);
    t.a = a.f32() + batch * a.batch_stride;
    t.b = b.f32() + batch * b.batch_stride;
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
  if (IsOneMicroPanel(job)) return OneMicroPanel(job, batches.begin(task), end);
  for (at.batch = batches.begin(task); at.batch < end; ++at.batch) {
    at.more = at.batch + 1 < end;
    UnpackedBlocks(job, at, scratch);
  }
}

// c = alpha · (the sums of all parts of k) + beta · c0, for so many columns of one row.
inline void AddParts(const Job& job, int64_t row, int64_t col, int64_t cols) {
  const Gemm& g = job.g;
  const DF d;
  float* const sums = job.shared + row * g.n + col;
  ForVectors(cols, [&](int64_t j, const auto& loader) HWY_ATTR {
    VF sum = loader.Load(d, sums + j);
    for (int64_t q = 1; q < job.k_parts; ++q) {
      sum = hn::Add(sum, loader.Load(d, sums + q * g.batch * g.m * g.n + j));
    }
    loader.Store(sum, d, sums + j);
  });
  StoreRows(job, true, row / g.m, row % g.m, col, {sums, g.n, 1, cols});
  job.finish({row / g.m, row % g.m, col, 1, cols});
}

// A thread's share of adding up: 64 columns of a row at a time, four lines of c.
inline void AddShare(const Job& job, const Team& team) {
  constexpr int64_t width = 64;
  const Gemm& g = job.g;
  const int64_t pieces = (g.n + width - 1) / width;
  const Shares shares(g.batch * g.m * pieces, team.threads);
  for (int64_t at = shares.begin(team.thread); at < shares.begin(team.thread + 1); ++at) {
    const int64_t j = at % pieces * width;
    AddParts(job, at / pieces, j, std::min(width, g.n - j));
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

// ---- packed (Goto): b, or both operands, are packed once for all threads -----------------------

// The part of b, and of a, that is packed at a time.
struct Phase {
  int64_t number;
  int64_t batch0, batches;
  int64_t j0, width;
  int64_t p0, depth;
};

// What a task multiplies at a time: rows [i0,i1) × a block of k × B micro-panels [s0,s1).
struct PackedStep {
  int64_t batch;              // of the phase
  int64_t row_part, a_block;  // where the rows are
  int64_t i0, i1;
  int64_t s0, s1;
  int64_t block, p, klen;  // of the phase's k
};

// A phase's packed operands, and who packs which piece when. Micro-panels of a block of k lie
// together, blocks of k one behind the other.
class PackedOperands {
 public:
  PackedOperands(const Job& job, const Phase& phase, int thread)
      : job_(job),
        phase_(phase),
        b_panels_(AllOf(phase.width)),
        packing_(job.packing->round(phase.number)),
        thread_(thread) {}

  const MicroPanels& b_panels() const { return b_panels_; }

  const float* B(const PackedStep& at) const {
    const Gemm& g = job_.g;
    if (job_.prepacked != nullptr) {
      return job_.prepacked + ((phase_.batch0 + at.batch) * g.k + phase_.p0 + at.p) * g.n;
    }
    return job_.shared + (at.batch * phase_.depth + at.p) * phase_.width;
  }
  // pack_a: A micro-panels of the step's rows.
  float* A(const PackedStep& at) const {
    return job_.shared_a + (at.batch * phase_.depth + at.p) * job_.rows + at.i0 * at.klen;
  }

  // Packs what no thread has begun of what the step reads; while others are at the rest, some of
  // what `later` ones of the same task read.
  template <class Later>
  void Need(const PackedStep& at, const Later& later) const {
    if (Pack(at)) return;
    for (PackedStep next = at; later(next);) {
      if (Ready(at)) return;
      Pack(next);
    }
    const PhaseTimer timer(RunPhase::wait);
    packing_.wait(FirstOfA(at), EndOfA(at));
    packing_.wait(FirstOfB(at), EndOfB(at));
  }
  bool Ready(const PackedStep& at) const {
    return packing_.done(FirstOfA(at), EndOfA(at)) && packing_.done(FirstOfB(at), EndOfB(at));
  }

 private:
  // Whether all that the step reads is packed by now.
  bool Pack(const PackedStep& at) const {
    const int64_t first_a = FirstOfA(at), first_b = FirstOfB(at);
    const int64_t skipped = at.s0 / job_.pieces.b_panels;
    const bool all_of_a = packing_.begin(first_a, EndOfA(at), thread_, [&](int64_t piece) {
      const PhaseTimer timer(RunPhase::pack);
      PackPieceOfA(at, piece - first_a);
    });
    return packing_.begin(first_b, EndOfB(at), thread_, [&](int64_t piece) {
      const PhaseTimer timer(RunPhase::pack);
      PackPieceOfB(at, piece - first_b + skipped);
    }) && all_of_a;
  }
  void PackPieceOfA(const PackedStep& at, int64_t piece) const {
    const int64_t tiles = pieces(at.i1 - at.i0, kMr), first = piece * job_.pieces.a_panels;
    if (first >= tiles) return;
    const MatrixView& a = job_.a;
    const float* from = a.f32() + (phase_.batch0 + at.batch) * a.batch_stride +
                        (phase_.p0 + at.p) * a.inner + at.i0 * a.outer;
    const Shares rows(at.i1 - at.i0, tiles);
    PackMicroPanels(
        from, a, at.klen, first, std::min(tiles, first + job_.pieces.a_panels),
        [&](int64_t q) { return rows.begin(q); }, A(at));
  }
  void PackPieceOfB(const PackedStep& at, int64_t piece) const {
    const MatrixView& b = job_.b;
    const int64_t first = piece * job_.pieces.b_panels;
    const float* from = b.f32() + (phase_.batch0 + at.batch) * b.batch_stride +
                        (phase_.p0 + at.p) * b.inner + phase_.j0 * b.outer;
    PackB(b, from, at.klen, b_panels_, first,
          std::min(b_panels_.count(), first + job_.pieces.b_panels),
          job_.shared + (at.batch * phase_.depth + at.p) * phase_.width);
  }
  // Pieces that a step reads; none of an operand that is not packed in a run.
  int64_t FirstOfB(const PackedStep& at) const {
    const PackedPieces& all = job_.pieces;
    return (at.batch * all.blocks + at.block) * all.b_pieces + at.s0 / all.b_panels;
  }
  int64_t EndOfB(const PackedStep& at) const {
    const PackedPieces& all = job_.pieces;
    if (all.b_pieces == 0) return FirstOfB(at);
    return FirstOfB(at) + (at.s1 - 1) / all.b_panels - at.s0 / all.b_panels + 1;
  }
  int64_t FirstOfA(const PackedStep& at) const {
    const PackedPieces& all = job_.pieces;
    const int64_t rows = (at.batch * all.row_parts + at.row_part) * all.a_blocks + at.a_block;
    return all.of_b() + (rows * all.blocks + at.block) * all.a_pieces;
  }
  int64_t EndOfA(const PackedStep& at) const { return FirstOfA(at) + job_.pieces.a_pieces; }

  const Job& job_;
  const Phase& phase_;
  const MicroPanels b_panels_;
  const SharedPieces::Round packing_;
  const int thread_;
};

// One share of a phase's output: all of the phase's depth, a block of a at a time.
inline void ComputeTask(const Job& job, const Phase& phase, int64_t task, int thread,
                        float* scratch) {
  const PackedOperands packed(job, phase, thread);
  const MicroPanels& b_panels = packed.b_panels();
  PackedStep at;
  const int64_t col_part = take_digit(task, job.n_parts);
  at.row_part = take_digit(task, job.m_parts);
  at.batch = task;
  at.s0 = share(b_panels.count(), job.n_parts, col_part);
  at.s1 = share(b_panels.count(), job.n_parts, col_part + 1);
  const MicroPanelRange range = {b_panels, phase.j0, at.s0, at.s1};
  const int64_t first_row = RowOfPart(job, at.row_part), last_row = RowOfPart(job, at.row_part + 1);
  if (at.s0 == at.s1 || first_row == last_row) return;
  // A block of k, if there is one at p; the one after it.
  const auto to_block = [&](PackedStep& step, int64_t p) {
    step.p = p;
    step.block = p / job.kc;
    step.klen = std::min(job.kc, phase.depth - p);
    return p < phase.depth;
  };
  const auto later = [&](PackedStep& step) { return to_block(step, step.p + step.klen); };
  Block block = {.batch = phase.batch0 + at.batch};
  const int64_t cols = b_panels.begin(range.s1) - b_panels.begin(range.s0);
  if (job.transposed) {
    const int64_t ld = (cols + 15) / 16 * 16;
    block.sums = {scratch, ld, 0, phase.j0 + b_panels.begin(range.s0)};
  }
  for (int64_t i0 = first_row; i0 < last_row; i0 += job.mc) {
    at.a_block = (i0 - first_row) / job.mc;
    block.i0 = at.i0 = i0;
    block.i1 = at.i1 = std::min(last_row, i0 + job.mc);
    block.sums.i0 = i0;
    for (int64_t p = 0; to_block(at, p); p += job.kc) {
      packed.Need(at, later);
      block.p = phase.p0 + p;
      block.klen = at.klen;
      block.first = job.transposed ? p == 0 : block.p == 0;
      block.b = packed.B(at);
      block.a = job.pack_a ? packed.A(at) : nullptr;
      block.next_a = {};
      block.next_b = nullptr;
      if (PackedStep next = at; job.pack_a && later(next) && packed.Ready(next)) {
        block.next_b = packed.B(next) + b_panels.begin(at.s0) * next.klen;
        block.next_a = {packed.A(next), (next.i1 - next.i0) * next.klen};
      }
      MacroKernel(job, range, block).Run();
    }
    if (!job.transposed) continue;
    const Sums& sums = block.sums;
    const PhaseTimer timer(log_beside((block.i1 - i0) * phase.depth * cols), RunPhase::store);
    // With an epilogue some rows of c at a time, as many as L1 holds.
    const bool finishes = job.epilogue != nullptr && phase.p0 + phase.depth == job.g.k;
    const int64_t group = finishes ? 32 : cols, count = block.i1 - i0;
    for (int64_t j = 0; j < cols; j += group) {
      const int64_t rows = std::min(group, cols - j);
      StoreTransposed(job, phase.p0 == 0, block.batch, sums.j0 + j, i0,
                      {sums.data + j, sums.ld, count, rows});
      if (finishes) job.finish({block.batch, sums.j0 + j, i0, rows, count});
    }
  }
}

// body(phase) for one after the other.
template <class Body>
void ForPhases(const Job& job, const Body& body) {
  const Gemm& g = job.g;
  int64_t number = 0;
  for (int64_t j0 = 0; j0 < job.cols; j0 += job.nc) {
    for (int64_t batch0 = 0; batch0 < g.batch; batch0 += job.batch_group) {
      for (int64_t p0 = 0; p0 < g.k; p0 += job.kb, ++number) {
        body(Phase{number, batch0, std::min(job.batch_group, g.batch - batch0), j0,
                   std::min(job.nc, job.cols - j0), p0, std::min(job.kb, g.k - p0)});
      }
    }
  }
}

inline void PackedTask(const Job& job, const Phase& phase, int64_t task, int thread) {
  const int64_t parts = job.m_parts * job.n_parts;
  const PhaseTimer timer(log_beside(job.rows * phase.width * phase.depth / parts),
                         RunPhase::compute);
  ComputeTask(job, phase, task, thread, job.scratch + thread * job.scratch_floats);
}

inline void RunPacked(const Job& job) {
  job.packing->begin();
  // Small products would notice what threads share, a chunk of tasks for each of up to 64.
  if (job.threads == 1) {
    ForPhases(job, [&](const Phase& phase) HWY_ATTR {
      const int64_t tasks = phase.batches * job.m_parts * job.n_parts;
      for (int64_t task = 0; task < tasks; ++task) PackedTask(job, phase, task, 0);
    });
    return;
  }
  // Tasks of the next phase are begun while nobody uses them: there are two of these, and between a
  // phase and the one after the next lie two barriers.
  const auto chunks_of_phase = [&] {
    return StaticChunks(job.fixed ? job.threads : 1, job.batch_group * job.m_parts * job.n_parts);
  };
  StaticChunks chunks[2] = {chunks_of_phase(), chunks_of_phase()};
  parallel_region(job.pool, job.threads, [&](const Team& team) {
    ForPhases(job, [&](const Phase& phase) HWY_ATTR {
      if (phase.number > 0) {
        team.barrier();  // what the last phase packed is no longer read
        if (team.thread == 0) chunks[(phase.number + 1) % 2].begin();
      }
      chunks[phase.number % 2].work(team.thread, [&](int64_t task) {
        if (task < phase.batches * job.m_parts * job.n_parts) {
          PackedTask(job, phase, task, team.thread);
        }
      });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
