// The hwy GEMM where one side has few rows and the other is contiguous across k, for the ISA target
// being compiled: that side is read once, where it lies. Where it is contiguous along k:
// hwy_dot-inl.h. Where both sides are long: hwy_paths-inl.h.
#if defined(ROOFLANE_GEMM_HWY_SKINNY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_SKINNY_INL_H_
#undef ROOFLANE_GEMM_HWY_SKINNY_INL_H_
#else
#define ROOFLANE_GEMM_HWY_SKINNY_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// ---- stream: few rows against a wide side that is contiguous across k --------------------------

// y(f,j) += Σ_r w(r,f)·b(r,j): rows of b are read from end to end, as memory delivers them fastest,
// kDepth at once, each fetched ahead; y stays in L1 or L2.
struct UpdateArgs {
  const float* w;  // [kDepth,kFew]
  const float* b;  // rows ldb apart
  int64_t ldb;
  bool more;  // as many rows of b follow
  int64_t cols;
  float* y;  // rows update_ld apart
};

// Floats that are fetched ahead along each row, at its end from the rows that come next (Zen 5, 8
// rows against 4096 × 4096 from memory: 32 GB/s with 128, 34 with 192, 35 with 256, 38 with 384, 37
// with 512). Two or three vectors of each row at once need fewer loads and are slower all the same,
// 29 and 30 GB/s, 19 without fetching.
constexpr int64_t kUpdateAhead = 384;

template <int kFew, int kDepth, bool kFetches>
class Update {
 public:
  static void Compute(const UpdateArgs& args) {
    const DF d;
    const UpdateArgs t = args;  // stores to y could be to args
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    Rows rows;
    Begin(rows, t, kAllRows);
    Weights held;
    Hold(held, t.w, std::make_integer_sequence<int, kHeldCount>());
    const int64_t ahead = kFetches ? std::min(kUpdateAhead, t.cols / lanes * lanes) : 0;
    const int64_t last = t.cols - ahead;
    const int64_t next = t.more ? kDepth * t.ldb - last : 0;
    int64_t j = 0;
    for (; j + lanes <= last; j += lanes) {
      Step(rows, t.w, held, t.y + j, j, j + ahead, Whole(), kRowsOfY);
    }
    for (; j + lanes <= t.cols; j += lanes) {
      Step(rows, t.w, held, t.y + j, j, j + next, Whole(), kRowsOfY);
    }
    if (j < t.cols) {
      const Part part(d, static_cast<std::size_t>(t.cols - j));
      Step(rows, t.w, held, t.y + j, j, j, part, kRowsOfY);
    }
  }

 private:
  static constexpr std::make_integer_sequence<int, kFew> kRowsOfY{};
  static constexpr std::make_integer_sequence<int, kDepth> kAllRows{};
  // Weights in registers; else each product loads one.
  static constexpr bool kHeld = kFew * kDepth <= (kMr * kNv >= 24 ? 24 : 8);
  static constexpr int kHeldCount = kHeld ? kFew * kDepth : 1;
  using Weights = VF[kHeldCount];
  using Rows = const float* [kDepth];

  template <int... I>
  static HWY_INLINE void Hold(Weights& held, const float* w, std::integer_sequence<int, I...>) {
    ((held[I] = hn::Set(DF(), w[I])), ...);
  }
  template <int... R>
  static HWY_INLINE void Begin(Rows& rows, const UpdateArgs& t, std::integer_sequence<int, R...>) {
    ((rows[R] = t.b + R * t.ldb), ...);
  }
  template <class Loader, int... F>
  static HWY_INLINE void Step(const Rows& rows, const float* w, const Weights& held, float* to,
                              int64_t j, int64_t fetched, const Loader& loader,
                              std::integer_sequence<int, F...>) {
    const DF d;
    VF y[kFew];
    ((y[F] = loader.Load(d, to + F * update_ld)), ...);
    All(y, rows, w, held, j, fetched, loader, kAllRows);
    (loader.Store(y[F], d, to + F * update_ld), ...);
  }
  template <class Loader, int... R>
  static HWY_INLINE void All(VF (&y)[kFew], const Rows& rows, const float* w, const Weights& held,
                             int64_t j, int64_t fetched, const Loader& loader,
                             std::integer_sequence<int, R...>) {
    (One<R>(y, w, held, hc::InRegister<kFew>(loader.Load(DF(), rows[R] + j)), rows[R] + fetched,
            kRowsOfY),
     ...);
  }
  template <int kRow, int... F>
  static HWY_INLINE void One(VF (&y)[kFew], const float* w, const Weights& held, VF b,
                             const float* fetched, std::integer_sequence<int, F...>) {
    if constexpr (kFetches) hwy::Prefetch(fetched);
    ((y[F] = hn::MulAdd(Weight<kRow * kFew + F>(w, held), b, y[F])), ...);
  }
  template <int kIndex>
  static HWY_INLINE VF Weight(const float* w, const Weights& held) {
    if constexpr (kHeld) {
      return held[kIndex];
    } else {
      return hn::Set(DF(), w[kIndex]);
    }
  }
};

// Rows of b at once: 8 (Zen 5, 8 rows of sums: 27 GB/s with 4, 33 with 6, 36 with 8 to 12, 34 with
// 16, which are more streams than the hardware follows), half as many near k's end.
constexpr int kUpdateDepth = 8, kUpdateHalf = 4;

template <int kFew>
void UpdateSome(int64_t depth, const UpdateArgs& t) {
  // A single row leaves the core time to follow memory by itself: 45 GB/s, 36 when it fetches
  // ahead.
  constexpr bool fetches = kFew > 1;
  if (depth == kUpdateDepth) {
    Update<kFew, kUpdateDepth, fetches>::Compute(t);
  } else if (depth == kUpdateHalf) {
    Update<kFew, kUpdateHalf, fetches>::Compute(t);
  } else {
    Update<kFew, 1, false>::Compute(t);
  }
}
using UpdateFunction = void (*)(int64_t depth, const UpdateArgs&);
template <int... kLess>
UpdateFunction UpdateFor(int64_t few, std::integer_sequence<int, kLess...>) {
  static constexpr UpdateFunction functions[] = {UpdateSome<kLess + 1>...};
  return functions[few - 1];
}

// sums(f, w) over job.nc columns of the wide side: up to most_updated rows.
inline void UpdateTask(const Job& job, const Side& few, const Side& wide, int64_t few_count,
                       int64_t batch, int64_t w0, int64_t width, float alpha, float* sums) {
  const auto update = UpdateFor(few_count, std::make_integer_sequence<int, most_updated>());
  const float* from = few.data + batch * few.batch_stride;
  float w[kUpdateDepth * most_updated];
  UpdateArgs t;
  t.w = w;
  t.b = wide.data + batch * wide.batch_stride + w0;
  t.ldb = wide.inner;
  t.cols = width;
  t.y = sums;
  int64_t depth = 0;
  for (int64_t p = 0; p < job.g.k; p += depth) {
    const int64_t left = job.g.k - p;
    depth = left >= kUpdateDepth ? kUpdateDepth : left >= kUpdateHalf ? kUpdateHalf : 1;
    float* to = w;
    for (int64_t r = p; r < p + depth; ++r) {
      for (int64_t f = 0; f < few_count; ++f) *to++ = alpha * from[f * few.outer + r * few.inner];
    }
    t.more = left >= 2 * depth;
    update(depth, t);
    t.b += depth * t.ldb;
  }
}

// The same for any number of rows, in register tiles, job.kc deep: the wide side is read once,
// strip by strip, the next one fetched ahead, while few × nc sums stay in L1. (On a Zen 5 nothing
// was gained by laying the few side out in panels, and 10 to 30 % lost by copying strips, and by
// fetching the next block's rows from end to end instead of the next strip.)
inline void StripsTask(const Job& job, const Side& few, const Side& wide, int64_t few_count,
                       int64_t batch, int64_t w0, int64_t width, float alpha, float* sums,
                       int64_t ld) {
  const Gemm& g = job.g;
  const TileShape shape = Shape();
  const Strips strips(width, shape);
  const int64_t tiles = (few_count + kMr - 1) / kMr;
  const float* few_data = few.data + batch * few.batch_stride;
  const float* wide_data = wide.data + batch * wide.batch_stride + w0;
  TileArgs t;
  t.a_outer = few.outer;
  t.a_inner = few.inner;
  t.ldb = wide.inner;
  t.ahead_step = wide.inner;
  t.ldc0 = t.ldc = ld;
  t.alpha = alpha;
  t.beta = 1;
  for (int64_t p = 0; p < g.k; p += job.kc) {
    t.k = std::min(job.kc, g.k - p);
    for (int64_t s = 0; s < strips.count(); ++s) {
      const int64_t j = strips.begin(s);
      const int64_t vectors = (strips.width(s) + shape.lanes - 1) / shape.lanes;
      t.b = wide_data + p * wide.inner + j;
      t.cols = strips.width(s);
      t.ahead = s + 1 < strips.count() ? t.b + t.cols : t.b;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t f = share(few_count, tiles, tile);
        const int64_t count = share(few_count, tiles, tile + 1) - f;
        t.a = few_data + f * few.outer + p * few.inner;
        t.c = sums + f * ld + j;
        t.c0 = t.c;
        (tile == 0 ? TileFor<false, 3>(count, vectors) : TileFor<false, 1>(count, vectors))(t);
      }
    }
  }
}

// Sums over job.nc columns of the wide side, which become rows of c or, where it is a (flip),
// columns: then they are turned at the end. They are added up in c itself or in scratch
// (job.in_place()).
inline void StreamTask(const Job& job, const Side& few, const Side& wide, int64_t few_count,
                       int64_t wide_count, int64_t task, float* scratch) {
  const Gemm& g = job.g;
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t parts = (wide_count + job.nc - 1) / job.nc;
  const int64_t batch = task / parts;
  const int64_t w0 = task % parts * job.nc;
  const int64_t width = std::min(job.nc, wide_count - w0);
  const bool in_place = job.in_place();
  float* sums = scratch;
  int64_t ld = job.stream_ld();
  if (in_place) {
    sums = job.c.row(batch, 0) + w0;
    ld = job.c.ld;
  } else if (job.sweep) {
    const auto place = [](const float* at) { return reinterpret_cast<std::uintptr_t>(at) / 64; };
    const float* read = wide.data + batch * wide.batch_stride + w0;
    sums += (place(read) - place(scratch)) * 16 % page_floats + update_lead;
  }
  // With vectors: memset would write long rows past L1.
  for (int64_t f = 0; f < few_count; ++f) {
    const float* c0 = in_place && g.reads_c0() ? job.c0.row(batch, f) + w0 : nullptr;
    for (int64_t j = 0; j < width; j += lanes) {
      const Part part(d, static_cast<std::size_t>(std::min(lanes, width - j)));
      VF start = hn::Zero(d);
      if (c0 != nullptr) start = hn::Mul(hn::Set(d, g.beta), part.Load(d, c0 + j));
      part.Store(start, d, sums + f * ld + j);
    }
  }
  const float alpha = in_place ? g.alpha : 1;
  if (job.sweep) {
    UpdateTask(job, few, wide, few_count, batch, w0, width, alpha, sums);
  } else {
    StripsTask(job, few, wide, few_count, batch, w0, width, alpha, sums, ld);
  }
  if (in_place) return;
  if (!job.flip) {
    for (int64_t f = 0; f < few_count; ++f) {
      float* c = job.c.row(batch, f) + w0;
      const float* c0 = g.reads_c0() ? job.c0.row(batch, f) + w0 : nullptr;
      for (int64_t j = 0; j < width; j += lanes) {
        const Part part(d, static_cast<std::size_t>(std::min(lanes, width - j)));
        VF v = hn::Mul(hn::Set(d, g.alpha), part.Load(d, sums + f * ld + j));
        if (c0 != nullptr) v = hn::MulAdd(hn::Set(d, g.beta), part.Load(d, c0 + j), v);
        part.Store(v, d, c + j);
      }
    }
    return;
  }
  TurnIntoC(job, true, batch, w0, 0, {.data = sums, .ld = ld, .rows = few_count, .cols = width});
}

inline void RunStream(const Job& job) {
  const int64_t few_count = job.flip ? job.g.n : job.g.m;
  const int64_t wide_count = job.flip ? job.g.m : job.g.n;
  const Side& few = job.flip ? job.b : job.a;
  const Side& wide = job.flip ? job.a : job.b;
  const int64_t tasks = job.g.batch * ((wide_count + job.nc - 1) / job.nc);
  run_tasks(job, tasks, [&](int64_t task, int thread) {
    StreamTask(job, few, wide, few_count, wide_count, task,
               job.scratch + thread * job.scratch_floats);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
