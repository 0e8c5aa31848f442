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

// y(f,j) += Σ_r w(f,r)·b(r,j) for `cols` columns: very few rows f, whose sums stay in L1, against
// whole rows of b, which memory delivers fastest when they are read from end to end.
struct UpdateArgs {
  const float* w;
  std::int64_t w_few, w_depth;  // strides of w(f,r)
  float factor;                 // of w
  const float* b;               // rows ldb apart
  std::int64_t ldb;
  std::int64_t cols;
  float* y;  // rows ldy apart
  std::int64_t ldy;
};

template <int kFew, int kDepth>
class Update {
 public:
  static void Compute(const UpdateArgs& t) {
    const DF d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    VF w[kFew * kDepth];
    Weights(w, t, kAll);
    std::int64_t j = 0;
    for (; j + lanes <= t.cols; j += lanes) Step(w, t, j, Whole(), kRowsOfY);
    if (j < t.cols) {
      Step(w, t, j, Part(d, static_cast<std::size_t>(t.cols - j)), kRowsOfY);
    }
  }

 private:
  static constexpr std::make_integer_sequence<int, kFew * kDepth> kAll{};
  static constexpr std::make_integer_sequence<int, kFew> kRowsOfY{};

  template <int... I>
  static HWY_INLINE void Weights(VF (&w)[kFew * kDepth], const UpdateArgs& t,
                                 std::integer_sequence<int, I...>) {
    ((w[I] = hn::Set(DF(), t.factor * t.w[I / kDepth * t.w_few + I % kDepth * t.w_depth])), ...);
  }
  template <class Loader, int... F>
  static HWY_INLINE void Step(const VF (&w)[kFew * kDepth], const UpdateArgs& t, std::int64_t j,
                              const Loader& loader, std::integer_sequence<int, F...>) {
    VF y[kFew];
    ((y[F] = loader.Load(DF(), t.y + F * t.ldy + j)), ...);
    Rows(w, y, t, j, loader, std::make_integer_sequence<int, kDepth>());
    (loader.Store(y[F], DF(), t.y + F * t.ldy + j), ...);
  }
  template <class Loader, int... R>
  static HWY_INLINE void Rows(const VF (&w)[kFew * kDepth], VF (&y)[kFew], const UpdateArgs& t,
                              std::int64_t j, const Loader& loader,
                              std::integer_sequence<int, R...>) {
    (Row<R>(w, y, loader.Load(DF(), t.b + R * t.ldb + j), kRowsOfY), ...);
  }
  template <int kRow, int... F>
  static HWY_INLINE void Row(const VF (&w)[kFew * kDepth], VF (&y)[kFew], VF b,
                             std::integer_sequence<int, F...>) {
    ((y[F] = hn::MulAdd(w[F * kDepth + kRow], b, y[F])), ...);
  }
};

// Most rows of the few side that update whole rows at once, with their weights in registers.
constexpr int kUpdateFew = 3;
constexpr bool kManyRegisters = kMr * kNv >= 24;
constexpr int UpdateDepth(int few) { return kManyRegisters || few == 1 ? 8 : 4; }

template <int kFew>
void UpdateAll(UpdateArgs t, int64_t depth) {
  constexpr int kDepth = UpdateDepth(kFew);
  int64_t p = 0;
  for (; p + kDepth <= depth; p += kDepth) {
    Update<kFew, kDepth>::Compute(t);
    t.w += kDepth * t.w_depth;
    t.b += kDepth * t.ldb;
  }
  for (; p < depth; ++p) {
    Update<kFew, 1>::Compute(t);
    t.w += t.w_depth;
    t.b += t.ldb;
  }
}

// sums(f, w) over job.nc columns of the wide side: very few rows, whole rows of the wide side at a
// time. `sums` starts at 0 or at beta·c0.
inline void UpdateTask(const Job& job, const Side& few, const Side& wide, int64_t few_count,
                       int64_t batch, int64_t w0, int64_t width, float* sums, int64_t ld) {
  UpdateArgs t;
  t.w = few.data + batch * few.batch_stride;
  t.w_few = few.outer;
  t.w_depth = few.inner;
  t.factor = job.flip ? 1.0f : job.g.alpha;
  t.b = wide.data + batch * wide.batch_stride + w0;
  t.ldb = wide.inner;
  t.cols = width;
  t.y = sums;
  t.ldy = ld;
  switch (few_count) {
    case 1:
      return UpdateAll<1>(t, job.g.k);
    case 2:
      return UpdateAll<2>(t, job.g.k);
    default:
      return UpdateAll<3>(t, job.g.k);
  }
}

// The same with more rows, in register tiles, job.kc deep: the wide side is read once, strip by
// strip, the next one fetched ahead, while few × nc sums stay in L1. (On a Zen 5 nothing was gained
// by laying the few side out in panels, and 10 to 30 % lost by copying strips, and by fetching the
// next block's rows from end to end instead of the next strip.)
inline void StripsTask(const Job& job, const Side& few, const Side& wide, int64_t few_count,
                       int64_t batch, int64_t w0, int64_t width, float* sums, int64_t ld) {
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
  t.alpha = job.flip ? 1.0f : g.alpha;
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

// job.nc columns of the wide side. Where it is a (flip), the sums are a transposed block of c, kept
// in scratch and turned at the end.
inline void StreamTask(const Job& job, const Side& few, const Side& wide, int64_t few_count,
                       int64_t wide_count, int64_t task, float* scratch) {
  const Gemm& g = job.g;
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t parts = (wide_count + job.nc - 1) / job.nc;
  const int64_t batch = task / parts;
  const int64_t w0 = task % parts * job.nc;
  const int64_t width = std::min(job.nc, wide_count - w0);
  float* sums = job.flip ? scratch : job.c.row(batch, 0) + w0;
  const int64_t ld = job.flip ? job.nc : job.c.ld;
  for (int64_t f = 0; f < few_count; ++f) {
    const bool adds = !job.flip && g.reads_c0();
    const VF beta = hn::Set(d, g.beta);
    for (int64_t j = 0; j < width; j += lanes) {
      const Part part(d, static_cast<std::size_t>(std::min(lanes, width - j)));
      VF start = hn::Zero(d);
      if (adds) start = hn::Mul(beta, part.Load(d, job.c0.row(batch, f) + w0 + j));
      part.Store(start, d, sums + f * ld + j);
    }
  }
  (few_count <= kUpdateFew ? UpdateTask : StripsTask)(job, few, wide, few_count, batch, w0, width,
                                                      sums, ld);
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

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
