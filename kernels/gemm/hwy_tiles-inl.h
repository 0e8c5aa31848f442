// Register tiles, dot products and packing of the hwy GEMM, for the ISA target being compiled. No
// blocking and no threads. Next: hwy_paths-inl.h.
#if defined(ROOFLANE_GEMM_HWY_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_TILES_INL_H_
#undef ROOFLANE_GEMM_HWY_TILES_INL_H_
#else
#define ROOFLANE_GEMM_HWY_TILES_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/gemm/hwy_job.hpp"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// The register tile: rows × vectors. Two FMA ports of 4 cycles need 8 independent accumulators; the
// rest of the register file goes into reuse. 8 × 3 with 32 registers: 24 accumulators, 3 of b, and
// a broadcast as memory operand; 11 loads serve 24 FMAs. 6 × 2 with 16 registers and FMA: 12 + 2
// + 1. Without FMA a product needs a register of its own: 4 × 2.
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kMr = 8;
constexpr int kNv = 3;
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
constexpr int kMr = 6;
constexpr int kNv = 2;
#else
constexpr int kMr = 4;
constexpr int kNv = 2;
#endif

// The first `count` lanes of a vector that is only partly there. Memory beyond them is not touched.
class Part {
 public:
  Part(DF d, std::size_t count)
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
      : mask_(hn::FirstN(d, count)) {
  }
  HWY_INLINE VF Load(DF d, const float* from) const { return hn::MaskedLoad(mask_, d, from); }
  HWY_INLINE void Store(VF v, DF d, float* to) const { hn::BlendedStore(v, mask_, d, to); }

 private:
  hn::Mask<DF> mask_;
#else
      // No masked memory access below AVX2: Highway's would touch the whole vector.
      : count_(count), whole_(count == hn::Lanes(d)) {
  }
  HWY_INLINE VF Load(DF d, const float* from) const {
    if (whole_) return hn::LoadU(d, from);
    HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
    for (std::size_t i = 0; i < count_; ++i) lanes[i] = from[i];
    return hn::Load(d, lanes);
  }
  HWY_INLINE void Store(VF v, DF d, float* to) const {
    if (whole_) {
      hn::StoreU(v, d, to);
      return;
    }
    HWY_ALIGN float lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < count_; ++i) to[i] = lanes[i];
  }

 private:
  std::size_t count_;
  bool whole_;
#endif
};

// The same interface for a vector that is all there.
struct Whole {
  HWY_INLINE VF Load(DF d, const float* from) const { return hn::LoadU(d, from); }
};

// c[rows, cols] = alpha · Σ_p a(i,p)·b(p,j) + beta · c0. beta = 0: c0 is not read. c0 may be c.
struct TileArgs {
  const float* a;
  std::int64_t a_outer, a_inner;  // strides of a(i,p); unused when a is packed as [k][rows]
  const float* b;                 // [k, cols], rows ldb apart
  std::int64_t ldb;
  std::int64_t k;
  std::int64_t cols;  // more than (vectors-1)·lanes, at most vectors·lanes
  const float* c0;
  std::int64_t ldc0;
  float* c;
  std::int64_t ldc;
  float alpha, beta;
};

// kPacked: a is a packed panel, and b's rows may be read up to a whole vector beyond `cols`.
// Otherwise a has any strides and nothing beyond `cols` is touched.
// All loops over accumulators are folds, so that the array never exists in memory: GCC 12 keeps it
// on the stack, at half the speed, when a single such loop stays rolled.
template <int kRows, int kVecs, bool kPacked>
class Tile {
 public:
  static void Compute(const TileArgs& t) {
    const DF d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const Part part(d, static_cast<std::size_t>(t.cols - (kVecs - 1) * lanes));
    VF acc[kCount];
    Zero(acc, kAll);
    if constexpr (kPacked) PrefetchRows(t, std::make_integer_sequence<int, kRows>());
    const float* HWY_RESTRICT a = t.a;
    const float* HWY_RESTRICT b = t.b;
    const std::int64_t a_outer = t.a_outer;
    const std::int64_t a_inner = kPacked ? kRows : t.a_inner;
    const std::int64_t ldb = t.ldb;
    for (std::int64_t p = t.k; p > 0; --p) {
      VF bv[kVecs];
      LoadB(bv, b, part, std::make_integer_sequence<int, kVecs - 1>());
      Step(acc, a, a_outer, bv, kAll);
      a += a_inner;
      b += ldb;
    }
    const VF alpha = hn::Set(d, t.alpha);
    const VF beta = hn::Set(d, t.beta);
    if (t.beta == 0) {
      Write<false>(acc, t, alpha, beta, part, kAll);
    } else {
      Write<true>(acc, t, alpha, beta, part, kAll);
    }
  }

 private:
  static constexpr int kCount = kRows * kVecs;
  static constexpr std::make_integer_sequence<int, kCount> kAll{};

  template <int... I>
  static HWY_INLINE void Zero(VF (&acc)[kCount], std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(DF())), ...);
  }
  template <int... R>
  static HWY_INLINE void PrefetchRows(const TileArgs& t, std::integer_sequence<int, R...>) {
    (PrefetchRow(t.c + R * t.ldc), ...);
  }
  static HWY_INLINE void PrefetchRow(const float* c) {
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(DF()));
    for (int v = 0; v < kVecs; ++v) hwy::Prefetch(c + v * lanes);
  }
  template <int... V>
  static HWY_INLINE void LoadB(VF (&bv)[kVecs], const float* b, const Part& part,
                               std::integer_sequence<int, V...>) {
    const DF d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    ((bv[V] = hn::LoadU(d, b + V * lanes)), ...);
    const float* last = b + (kVecs - 1) * lanes;
    bv[kVecs - 1] = kPacked ? hn::LoadU(d, last) : part.Load(d, last);
  }
  template <int... I>
  static HWY_INLINE void Step(VF (&acc)[kCount], const float* a, std::int64_t a_outer,
                              const VF (&bv)[kVecs], std::integer_sequence<int, I...>) {
    const DF d;
    ((acc[I] =
          hn::MulAdd(hn::Set(d, a[I / kVecs * (kPacked ? 1 : a_outer)]), bv[I % kVecs], acc[I])),
     ...);
  }
  template <bool kAdd, int... I>
  static HWY_INLINE void Write(const VF (&acc)[kCount], const TileArgs& t, VF alpha, VF beta,
                               const Part& part, std::integer_sequence<int, I...>) {
    (WriteOne<kAdd, I / kVecs, I % kVecs>(acc[I], t, alpha, beta, part), ...);
  }
  template <bool kAdd, int kRow, int kVec>
  static HWY_INLINE void WriteOne(VF sum, const TileArgs& t, VF alpha, VF beta, const Part& part) {
    const DF d;
    constexpr bool kLast = kVec == kVecs - 1;
    const std::int64_t at = kVec * static_cast<std::int64_t>(hn::Lanes(d));
    float* to = t.c + kRow * t.ldc + at;
    VF v = hn::Mul(alpha, sum);
    if constexpr (kAdd) {
      const float* from = t.c0 + kRow * t.ldc0 + at;
      v = hn::MulAdd(beta, kLast ? part.Load(d, from) : hn::LoadU(d, from), v);
    }
    if constexpr (kLast) {
      part.Store(v, d, to);
    } else {
      hn::StoreU(v, d, to);
    }
  }
};

using TileFunction = void (*)(const TileArgs&);

template <bool kPacked, std::size_t... I>
constexpr std::array<TileFunction, sizeof...(I)> MakeTiles(std::index_sequence<I...>) {
  return {&Tile<static_cast<int>(I) / kNv + 1, static_cast<int>(I) % kNv + 1, kPacked>::Compute...};
}

// The tile for `rows` (1 to kMr) and `vectors` (1 to kNv).
template <bool kPacked>
TileFunction TileFor(std::int64_t rows, std::int64_t vectors) {
  static constexpr auto tiles = MakeTiles<kPacked>(std::make_index_sequence<kMr * kNv>());
  return tiles[static_cast<std::size_t>((rows - 1) * kNv + vectors - 1)];
}

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
    Write(acc, t, kAll);
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
    VF few[kFew];
    LoadFew(few, t, p, loader, std::make_integer_sequence<int, kFew>());
    StepMany(acc, few, t, p, loader, std::make_integer_sequence<int, kMany>());
  }
  template <class Loader, int... F>
  static HWY_INLINE void LoadFew(VF (&few)[kFew], const DotArgs& t, std::int64_t p,
                                 const Loader& loader, std::integer_sequence<int, F...>) {
    ((few[F] = loader.Load(DF(), t.few + F * t.few_ld + p)), ...);
  }
  template <class Loader, int... M>
  static HWY_INLINE void StepMany(VF (&acc)[kCount], const VF (&few)[kFew], const DotArgs& t,
                                  std::int64_t p, const Loader& loader,
                                  std::integer_sequence<int, M...>) {
    (StepOne<M>(acc, few, loader.Load(DF(), t.many + M * t.many_ld + p),
                std::make_integer_sequence<int, kFew>()),
     ...);
  }
  template <int kRow, int... F>
  static HWY_INLINE void StepOne(VF (&acc)[kCount], const VF (&few)[kFew], VF many,
                                 std::integer_sequence<int, F...>) {
    ((acc[kRow * kFew + F] = hn::MulAdd(few[F], many, acc[kRow * kFew + F])), ...);
  }
  template <int... I>
  static HWY_INLINE void Write(const VF (&acc)[kCount], const DotArgs& t,
                               std::integer_sequence<int, I...>) {
    (WriteOne<I % kFew, I / kFew>(acc[I], t), ...);
  }
  template <int kF, int kM>
  static HWY_INLINE void WriteOne(VF sum, const DotArgs& t) {
    const DF d;
    float v = t.alpha * hn::GetLane(hn::SumOfLanes(d, sum));
    if (t.beta != 0) v += t.beta * t.c0[kF * t.c0_few + kM * t.c0_many];
    t.c[kF * t.c_few + kM * t.c_many] = v;
  }
};

#if HWY_TARGET != HWY_SCALAR
// A 4 × 4 block of PackTransposed, in registers.
HWY_INLINE void Transpose4x4(const float* HWY_RESTRICT from, std::int64_t ldf,
                             float* HWY_RESTRICT to, std::int64_t ldt) {
  const hn::CappedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from);
  const auto r1 = hn::LoadU(d, from + ldf);
  const auto r2 = hn::LoadU(d, from + 2 * ldf);
  const auto r3 = hn::LoadU(d, from + 3 * ldf);
  const auto low01 = hn::InterleaveLower(d, r0, r1);
  const auto low23 = hn::InterleaveLower(d, r2, r3);
  const auto high01 = hn::InterleaveUpper(d, r0, r1);
  const auto high23 = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, to + ldt);
  hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, to + 2 * ldt);
  hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, to + 3 * ldt);
}
#endif

// to[c·ldt + r] = from[r·ldf + c] for rows × cols, 4 × 4 blocks at a time; the last block of either
// axis overlaps its neighbour and writes the same values again. With more rows than L1 has ways, a
// cache line of each row (16 columns) is used up before the next: rows a power of two apart share
// cache sets.
inline void PackTransposed(const float* HWY_RESTRICT from, std::int64_t ldf, std::int64_t rows,
                           std::int64_t cols, float* HWY_RESTRICT to, std::int64_t ldt) {
#if HWY_TARGET != HWY_SCALAR
  if (rows >= 4 && cols >= 4) {
    const std::int64_t chunk = rows <= 8 ? cols : 16;
    for (std::int64_t c0 = 0; c0 < cols; c0 += chunk) {
      const std::int64_t c1 = std::min(cols, c0 + chunk);
      for (std::int64_t r = 0; r < rows; r += 4) {
        const std::int64_t row = std::min(r, rows - 4);
        for (std::int64_t c = c0; c < c1; c += 4) {
          const std::int64_t col = std::min(c, cols - 4);
          Transpose4x4(from + row * ldf + col, ldf, to + col * ldt + row, ldt);
        }
      }
    }
    return;
  }
#endif
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) to[c * ldt + r] = from[r * ldf + c];
  }
}

// to[r·ldt + c] = from[r·ldf + c] for rows × cols.
inline void PackRows(const float* HWY_RESTRICT from, std::int64_t ldf, std::int64_t rows,
                     std::int64_t cols, float* HWY_RESTRICT to, std::int64_t ldt) {
  const DF d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = cols / lanes * lanes;
  const Part part(d, static_cast<std::size_t>(cols - whole));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < whole; c += lanes) {
      hn::StoreU(hn::LoadU(d, from + r * ldf + c), d, to + r * ldt + c);
    }
    if (whole < cols) part.Store(part.Load(d, from + r * ldf + whole), d, to + r * ldt + whole);
  }
}

// Panels [first,last) of x, whichever way x lies. Panel q holds the outer indices
// [begin(q), begin(q+1)) for p in [0,inners) as [inners][panel width], and stands at
// to + begin(q)·inners.
template <class Begin>
void PackPanels(const float* from, const Side& x, std::int64_t inners, std::int64_t first,
                std::int64_t last, const Begin& begin, float* to) {
  if (x.inner == 1) {
    for (std::int64_t q = first; q < last; ++q) {
      const std::int64_t i = begin(q), width = begin(q + 1) - i;
      PackTransposed(from + i * x.outer, x.outer, width, inners, to + i * inners, width);
    }
    return;
  }
  // x is contiguous across panels: 8 rows of all panels at a time, so that lines shared by two
  // panels are read once. 8 rows a power of two apart still fit the ways of one L1 set.
  for (std::int64_t p = 0; p < inners; p += 8) {
    const std::int64_t rows = std::min<std::int64_t>(8, inners - p);
    for (std::int64_t q = first; q < last; ++q) {
      const std::int64_t i = begin(q), width = begin(q + 1) - i;
      PackRows(from + p * x.inner + i * x.outer, x.inner, rows, width, to + i * inners + p * width,
               width);
    }
  }
}

// to[i·ldt + p] = x(i,p): rows contiguous along k.
inline void PackAlongK(const float* from, const Side& x, std::int64_t outers, std::int64_t inners,
                       float* to, std::int64_t ldt) {
  if (x.inner == 1) {
    PackRows(from, x.outer, outers, inners, to, ldt);
  } else {
    PackTransposed(from, x.inner, inners, outers, to, ldt);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
