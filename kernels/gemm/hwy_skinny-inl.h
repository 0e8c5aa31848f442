// The hwy GEMM where one side has few rows, for the ISA target being compiled: the other side is
// read once, where it lies, at memory's speed. Where both sides are long: hwy_paths-inl.h.
#if defined(ROOFLANE_GEMM_HWY_SKINNY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_SKINNY_INL_H_
#undef ROOFLANE_GEMM_HWY_SKINNY_INL_H_
#else
#define ROOFLANE_GEMM_HWY_SKINNY_INL_H_
#endif

#include <algorithm>
#include <array>
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
// strip, the next one fetched ahead, while few × nc sums stay in L1.
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

// ---- dot: few rows against a long side that is contiguous along k ------------------------------

// c(f,w) = alpha · Σ_p few(f,p)·many(w,p) + beta · c0(f,w); both sides contiguous along k.
struct DotArgs {
  const float* few;
  std::int64_t few_ld;
  const float* many;
  std::int64_t many_ld;
  std::int64_t k;
  const float* c0;
  std::int64_t c0_few, c0_many;
  float* c;
  std::int64_t c_few, c_many;
  float alpha, beta;
};

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE void StoreSumOfBlocks(D d, hn::Vec<D> v, float* to) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    StoreSumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}
#endif

// The sums of the lanes of four vectors: 13 instructions with 16 lanes, a third of four single
// ones.
HWY_INLINE void SumFour(VF v0, VF v1, VF v2, VF v3, float* sums) {
#if HWY_TARGET == HWY_SCALAR
  sums[0] = hn::GetLane(v0), sums[1] = hn::GetLane(v1);
  sums[2] = hn::GetLane(v2), sums[3] = hn::GetLane(v3);
#else
  const DF d;
  const hn::RepartitionToWide<DF> pairs;
  const VF v01 = hn::Add(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const VF v23 = hn::Add(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const auto p01 = hn::BitCast(pairs, v01), p23 = hn::BitCast(pairs, v23);
  // Four sums in each block of 128 bits.
  const VF blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, p01, p23)),
                            hn::BitCast(d, hn::InterleaveUpper(pairs, p01, p23)));
  StoreSumOfBlocks(d, blocks, sums);
#endif
}

template <int kFew, int kMany>
class Dot {
 public:
  static void Compute(const DotArgs& t) {
    const DF d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    VF acc[kCount];
    Zero(acc, kAll);
    std::int64_t p = 0;
    for (; p + lanes <= t.k; p += lanes) {
      Step(acc, t, p, Whole());
    }
    if (p < t.k) {
      const Part part(d, static_cast<std::size_t>(t.k - p));
      Step(acc, t, p, part);
    }
    Write(acc, t);
  }

 private:
  static constexpr int kCount = kFew * kMany;
  static constexpr std::make_integer_sequence<int, kCount> kAll{};

  template <int... I>
  static HWY_INLINE void Zero(VF (&acc)[kCount], std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(DF())), ...);
  }
  template <class Loader>
  static HWY_INLINE void Step(VF (&acc)[kCount], const DotArgs& t, std::int64_t p,
                              const Loader& loader) {
    VF many[kMany];
    LoadMany(many, t, p, loader, std::make_integer_sequence<int, kMany>());
    StepAll(acc, many, t, p, loader, std::make_integer_sequence<int, kFew>());
  }
  template <class Loader, int... M>
  static HWY_INLINE void LoadMany(VF (&many)[kMany], const DotArgs& t, std::int64_t p,
                                  const Loader& loader, std::integer_sequence<int, M...>) {
    ((many[M] = loader.Load(DF(), t.many + M * t.many_ld + p)), ...);
  }
  template <class Loader, int... F>
  static HWY_INLINE void StepAll(VF (&acc)[kCount], const VF (&many)[kMany], const DotArgs& t,
                                 std::int64_t p, const Loader& loader,
                                 std::integer_sequence<int, F...>) {
    (StepOne<F>(acc, many, loader.Load(DF(), t.few + F * t.few_ld + p),
                std::make_integer_sequence<int, kMany>()),
     ...);
  }
  template <int kF, int... M>
  static HWY_INLINE void StepOne(VF (&acc)[kCount], const VF (&many)[kMany], VF few,
                                 std::integer_sequence<int, M...>) {
    ((acc[M * kFew + kF] = hn::MulAdd(few, many[M], acc[M * kFew + kF])), ...);
  }
  static HWY_INLINE void Write(const VF (&acc)[kCount], const DotArgs& t) {
    HWY_ALIGN float sums[(kCount + 3) / 4 * 4];
    Sum(acc, sums, std::make_integer_sequence<int, kCount / 4>(),
        std::make_integer_sequence<int, kCount % 4>());
#if HWY_TARGET != HWY_SCALAR
    if (kFew % 4 == 0 && t.c_few == 1 && (t.beta == 0 || t.c0_few == 1)) {
      const hn::CappedTag<float, 4> d4;
      const auto alpha = hn::Set(d4, t.alpha), beta = hn::Set(d4, t.beta);
      for (int i = 0; i < kCount; i += 4) {
        const int m = i / kFew, f = i % kFew;
        auto v = hn::Mul(alpha, hn::Load(d4, sums + i));
        if (t.beta != 0) v = hn::MulAdd(beta, hn::LoadU(d4, t.c0 + m * t.c0_many + f), v);
        hn::StoreU(v, d4, t.c + m * t.c_many + f);
      }
      return;
    }
#endif
    for (int i = 0; i < kCount; ++i) {
      const int m = i / kFew, f = i % kFew;
      const float v = t.alpha * sums[i];
      float& to = t.c[f * t.c_few + m * t.c_many];
      to = t.beta == 0 ? v : v + t.beta * t.c0[f * t.c0_few + m * t.c0_many];
    }
  }
  template <int... Q, int... Rest>
  static HWY_INLINE void Sum(const VF (&acc)[kCount], float* sums, std::integer_sequence<int, Q...>,
                             std::integer_sequence<int, Rest...>) {
    (SumFour(acc[4 * Q], acc[4 * Q + 1], acc[4 * Q + 2], acc[4 * Q + 3], sums + 4 * Q), ...);
    ((sums[kCount / 4 * 4 + Rest] = hn::GetLane(hn::SumOfLanes(DF(), acc[kCount / 4 * 4 + Rest]))),
     ...);
  }
};

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

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
