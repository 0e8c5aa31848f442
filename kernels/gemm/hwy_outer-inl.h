// The outer-product path of the hwy GEMM, for the ISA target being compiled: a skinny dimension,
// the long operand contiguous across k and read once, in place. If it is contiguous along k:
// hwy_dot-inl.h. If neither dimension is skinny: hwy_loops-inl.h.
#if defined(ROOFLANE_GEMM_HWY_OUTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_OUTER_INL_H_
#undef ROOFLANE_GEMM_HWY_OUTER_INL_H_
#else
#define ROOFLANE_GEMM_HWY_OUTER_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// ---- whole rows of c: rank-kDepth updates ------------------------------------------------------

// y(f,j) += Σ_r w(r,f)·b(r,j): rows of b are read from end to end, as memory delivers them fastest,
// kDepth at once, each prefetched; y stays in L1 or L2.
struct UpdateArgs {
  const float* w;  // [kDepth,kSkinny]
  const float* b;  // rows ldb apart
  int64_t ldb;
  bool more;  // as many rows of b follow
  int64_t cols;
  float* y;  // rows outer_row apart
};

// Prefetch distance in floats, for each row, at its end into the rows that come next. Eight rows of
// it are 12 KiB, what memory delivers at 30 GB/s in its latency of 400 ns. Dead end: two or three
// vectors of each row at once need fewer loads and were slower on a Zen 5 all the same.
constexpr int64_t kUpdatePrefetch = 384;

template <int kSkinny, int kDepth, bool kPrefetches>
class Update {
 public:
  static void Compute(const UpdateArgs& args) {
    const DF d;
    const UpdateArgs t = args;  // stores to y could be to args
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const float* rows[kDepth];
    VF held[kHeld ? kCount : 1];
#pragma GCC unroll 8
    for (int r = 0; r < kDepth; ++r) rows[r] = t.b + r * t.ldb;
#pragma GCC unroll 32
    for (int i = 0; kHeld && i < kCount; ++i) held[i] = hn::Set(d, t.w[i]);
    // Columns [j,…): of each row of b a vector, for all rows of y.
    const auto step = [&](int64_t j, int64_t prefetched, const auto& loader) HWY_ATTR {
      VF y[kSkinny];
#pragma GCC unroll 16
      for (int f = 0; f < kSkinny; ++f) y[f] = loader.Load(d, t.y + j + f * outer_row);
#pragma GCC unroll 8
      for (int r = 0; r < kDepth; ++r) {
        const VF b = hc::InRegister<kSkinny>(loader.Load(d, rows[r] + j));
        if constexpr (kPrefetches) hwy::Prefetch(rows[r] + prefetched);
#pragma GCC unroll 16
        for (int f = 0; f < kSkinny; ++f) {
          const int i = r * kSkinny + f;
          y[f] = hn::MulAdd(kHeld ? held[i] : VF(hn::Set(d, t.w[i])), b, y[f]);
        }
      }
#pragma GCC unroll 16
      for (int f = 0; f < kSkinny; ++f) loader.Store(y[f], d, t.y + j + f * outer_row);
    };
    const int64_t prefetch = kPrefetches ? std::min(kUpdatePrefetch, t.cols / lanes * lanes) : 0;
    const int64_t last = t.cols - prefetch;
    const int64_t next = t.more ? kDepth * t.ldb - last : 0;
    int64_t j = 0;
    for (; j + lanes <= last; j += lanes) step(j, j + prefetch, Whole());
    for (; j + lanes <= t.cols; j += lanes) step(j, j + next, Whole());
    if (j < t.cols) step(j, j, Part(d, static_cast<std::size_t>(t.cols - j)));
  }

 private:
  // Weights in registers; else each product loads one.
  static constexpr int kCount = kSkinny * kDepth;
  static constexpr bool kHeld = kCount <= (kMr * kNv >= 24 ? 24 : 8);
};

// Rows of b at once: 8, so that sums are loaded and stored once in eight products; with 16 they are
// more streams than the hardware prefetcher follows. Half as many close to k's end.
constexpr int kUpdateDepth = 8, kUpdateHalf = 4;

template <int kSkinny>
void UpdateSome(int64_t depth, const UpdateArgs& t) {
  // A single row of sums leaves the core so little to do that out-of-order execution alone keeps
  // memory busy, and prefetches only take load slots.
  constexpr bool prefetches = kSkinny > 1;
  if (depth == kUpdateDepth) {
    Update<kSkinny, kUpdateDepth, prefetches>::Compute(t);
  } else if (depth == kUpdateHalf) {
    Update<kSkinny, kUpdateHalf, prefetches>::Compute(t);
  } else {
    Update<kSkinny, 1, false>::Compute(t);
  }
}
using UpdateFunction = void (*)(int64_t depth, const UpdateArgs&);
template <int... kLess>
UpdateFunction UpdateFor(int64_t skinny, std::integer_sequence<int, kLess...>) {
  static constexpr UpdateFunction functions[] = {UpdateSome<kLess + 1>...};
  return functions[skinny - 1];
}

// sums(f, w) over job.nc columns of the long operand: up to most_outer_rows rows.
inline void UpdateTask(const Job& job, int64_t batch, int64_t w0, int64_t width, float alpha,
                       float* sums) {
  const MatrixView &skinny = job.a, &longer = job.b;
  const auto update = UpdateFor(job.rows, std::make_integer_sequence<int, most_outer_rows>());
  const float* from = skinny.f32() + batch * skinny.batch_stride;
  float w[kUpdateDepth * most_outer_rows];
  UpdateArgs t;
  t.w = w;
  t.b = longer.f32() + batch * longer.batch_stride + w0;
  t.ldb = longer.inner;
  t.cols = width;
  t.y = sums;
  int64_t depth = 0;
  for (int64_t p = 0; p < job.g.k; p += depth) {
    const int64_t left = job.g.k - p;
    depth = left >= kUpdateDepth ? kUpdateDepth : left >= kUpdateHalf ? kUpdateHalf : 1;
    float* to = w;
    for (int64_t r = p; r < p + depth; ++r) {
      for (int64_t f = 0; f < job.rows; ++f)
        *to++ = alpha * from[f * skinny.outer + r * skinny.inner];
    }
    t.more = left >= 2 * depth;
    update(depth, t);
    t.b += depth * t.ldb;
  }
}

// ---- micro-tiles -------------------------------------------------------------------------------

// The same for any number of rows, by micro-kernels, job.kc deep: the long operand is read once, B
// micro-panel by B micro-panel in place, the next one prefetched, while skinny × nc sums stay in
// L1. Dead ends on a Zen 5: packing A micro-panels gained nothing; packing B micro-panels, and
// prefetching the next block's rows from end to end instead of the next micro-panel, lost.
inline void MicroTilesTask(const Job& job, int64_t batch, int64_t w0, int64_t width, float alpha,
                           float* sums, int64_t ld) {
  const MatrixView &skinny = job.a, &longer = job.b;
  const Gemm& g = job.g;
  const MicroTile shape = Registers();
  const MicroPanels b_panels = AllOf(width);
  const int64_t tiles = pieces(job.rows, kMr);
  const Shares rows(job.rows, tiles);
  const float* skinny_data = skinny.f32() + batch * skinny.batch_stride;
  const float* long_data = longer.f32() + batch * longer.batch_stride + w0;
  MicroKernelArgs t;
  t.a_outer = skinny.outer;
  t.a_inner = skinny.inner;
  t.ldb = longer.inner;
  t.prefetch_step = longer.inner;
  t.ldc0 = t.ldc = ld;
  t.alpha = alpha;
  t.beta = 1;
  for (int64_t p = 0; p < g.k; p += job.kc) {
    t.k = std::min(job.kc, g.k - p);
    for (int64_t s = 0; s < b_panels.count(); ++s) {
      const int64_t j = b_panels.begin(s);
      const int64_t vectors = (b_panels.width(s) + shape.lanes - 1) / shape.lanes;
      t.b = long_data + p * longer.inner + j;
      t.cols = b_panels.width(s);
      t.prefetch = s + 1 < b_panels.count() ? t.b + t.cols : t.b;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t f = rows.begin(tile), count = rows.size(tile);
        t.a = skinny_data + f * skinny.outer + p * skinny.inner;
        t.c = sums + f * ld + j;
        t.c0 = t.c;
        (tile == 0 ? MicroKernelFor<false, 3>(count, vectors)
                   : MicroKernelFor<false, 1>(count, vectors))(t);
      }
    }
  }
}

// Sums over job.nc columns of the long operand, which become rows of c or, where that is a (the
// problem transposed), columns: then they are transposed at the end. They are added up in c itself
// or in scratch (outer_in_place(job, job.g)).
inline void OuterTask(const Job& job, int64_t batch, int64_t w0, int64_t width, float* scratch) {
  const Gemm& g = job.g;
  const DF d;
  const bool in_place = outer_in_place(job, job.g);
  float* sums = scratch;
  int64_t ld = outer_ld(job);
  if (in_place) {
    sums = job.c.row(batch, 0) + w0;
    ld = job.c.ld;
  } else if (job.order) {
    const auto place = [](const float* at) { return reinterpret_cast<std::uintptr_t>(at) / 64; };
    const float* read = job.b.f32() + batch * job.b.batch_stride + w0;
    sums += (place(read) - place(scratch)) * 16 % page_floats + outer_lead;
  }
  // With vectors: memset would write long rows with stores that bypass L1.
  for (int64_t f = 0; f < job.rows; ++f) {
    const float* c0 = in_place && g.reads_c0() ? job.c0.row(batch, f) + w0 : nullptr;
    ForVectors(width, [&](int64_t j, const auto& loader) HWY_ATTR {
      VF start = hn::Zero(d);
      if (c0 != nullptr) start = hn::Mul(hn::Set(d, g.beta), loader.Load(d, c0 + j));
      loader.Store(start, d, sums + f * ld + j);
    });
  }
  const float alpha = in_place ? g.alpha : 1;
  if (job.order) {
    UpdateTask(job, batch, w0, width, alpha, sums);
  } else {
    MicroTilesTask(job, batch, w0, width, alpha, sums, ld);
  }
  if (!in_place) {
    const PhaseTimer timer(log_beside(job.rows * width * g.k), RunPhase::store);
    const SumRows all = {sums, ld, job.rows, width};
    if (job.transposed) {
      StoreTransposed(job, true, batch, w0, 0, all);
    } else {
      StoreRows(job, true, batch, 0, w0, all);
    }
  }
  job.finish_formed({batch, 0, w0, job.rows, width});
}

inline void RunOuter(const Job& job) {
  const int64_t parts = div_up(job.cols, job.nc);
  run_tasks(job, job.g.batch * parts, [&](int64_t task, int thread) {
    const int64_t begin = task % parts * job.nc;
    OuterTask(job, task / parts, begin, std::min(job.nc, job.cols - begin),
              job.scratch + thread * job.scratch_floats);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
