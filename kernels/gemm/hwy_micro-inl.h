// The micro-kernel of the hwy GEMM, which computes an MR×NR micro-tile of c in registers from an A
// and a B micro-panel, and the packing of micro-panels, for the ISA target being compiled. No
// blocking and no threads. Next: hwy_macro-inl.h.
#if defined(ROOFLANE_GEMM_HWY_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_MICRO_INL_H_
#undef ROOFLANE_GEMM_HWY_MICRO_INL_H_
#else
#define ROOFLANE_GEMM_HWY_MICRO_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/common/register-inl.h"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_part-inl.h"
#include "kernels/gemm/hwy_transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

// Micro-tiles of fewer rows and more vectors: where k is so short that c is most of the traffic, it
// is written in longer runs (512 bytes instead of 192), which the caches take faster.
constexpr int kRunNv = kMr * kNv / (kMr * kNv >= 24 ? 3 : 2);
constexpr int kMaxNv = std::max(kNv + 1, kRunNv);
// Most rows of a micro-tile of other widths: as many accumulators, or 2·kMr rows, beyond which
// nothing is gained. Only where a is read in place: A micro-panels have kMr rows.
constexpr int TallRows(int vectors) { return std::min(kMr * kNv / vectors, 2 * kMr); }

// Floats to prefetch into L2, so many cache lines at a time that `calls` of Issue are enough.
struct PrefetchQueue {
  const float* at = nullptr;
  std::int64_t lines = 0, rate = 0;

  PrefetchQueue() = default;
  PrefetchQueue(const float* from, std::int64_t floats, std::int64_t calls)
      : at(from), lines((floats + 15) / 16), rate(pieces(lines, calls)) {}
  HWY_INLINE void Issue() {
    for (std::int64_t i = std::min(rate, lines); i > 0; --i, --lines, at += 16) {
      __builtin_prefetch(at, 0, 2);
    }
  }
};

// c[rows, cols] = alpha · Σ_p a(i,p)·b(p,j) + beta · c0. beta = 0: c0 is not read. c0 may be c.
struct MicroKernelArgs {
  const float* a;
  std::int64_t a_outer, a_inner;  // strides of a(i,p); unused when a is an A micro-panel, [k][rows]
  const float* b;                 // [k, cols], rows ldb apart
  std::int64_t ldb;
  std::int64_t k;
  std::int64_t cols;  // more than (vectors-1)·lanes, at most vectors·lanes
  const float* c0;
  std::int64_t ldc0;
  float* c;
  std::int64_t ldc;
  float alpha, beta;
  // a in place: prefetched into L2, kPrefetch lines each step of k.
  const float* prefetch = nullptr;
  std::int64_t prefetch_step = 0;
  PrefetchQueue* queues = nullptr;  // packed: of a and of b, each asked every eight steps
};

// kPacked: a is an A micro-panel, and b's rows may be read up to a whole vector beyond `cols`.
// Otherwise a has any strides and nothing beyond `cols` is touched.
// D: DF, or DH for half a vector. All loops over accumulators are folds, so that the array never
// exists in memory: GCC 12 keeps it on the stack, at half the speed, when a single such loop stays
// rolled.
template <class D, int kRows, int kVecs, bool kPacked, int kPrefetch>
class MicroKernel {
 public:
  using V = hn::Vec<D>;
  static void Compute(const MicroKernelArgs& t) {
#if ROOFLANE_LOWER_PART
    // No vector of 512 bits among them: beside those an Intel core has one FMA port for halves.
    if constexpr (std::is_same_v<D, DF> && !kPacked && kVecs == 1) {
      if (2 * t.cols <= static_cast<std::int64_t>(hn::Lanes(D()))) {
        MicroKernel<DH, kRows, 1, false, kPrefetch>::ComputeThis(t);
      } else {
        ComputeThis(t);
      }
      return;
    }
#endif
    ComputeInline(t);
  }
  // On its own, so that Compute is no more than a jump to it.
  static HWY_NOINLINE void ComputeThis(const MicroKernelArgs& t) { ComputeInline(t); }

 private:
  static HWY_INLINE void ComputeInline(const MicroKernelArgs& t) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t last = t.cols - (kVecs - 1) * lanes;
    V acc[kCount];
#if ROOFLANE_LOWER_PART
    if constexpr (!kPacked && kVecs >= 2 && kVecs <= kNv) {
      if (2 * last <= lanes) {
        const LowerPart lower(static_cast<std::size_t>(last));
        Sum(acc, t, lower);
        Write(acc, t, lower);
        return;
      }
    }
#endif
    const Part part(d, static_cast<std::size_t>(last));
    if constexpr (kCount <= 8) {
      Sum(acc, t, part);
    } else if (kReadsBeyond || last == lanes) {
      Sum(acc, t, Whole());
    } else {
      Sum(acc, t, part);
    }
    if (last == lanes) {
      Write(acc, t, Whole());
    } else {
      Write(acc, t, part);
    }
  }

  // What lies beyond is another micro-panel, which another thread may be packing. It reaches no
  // element of c, but the thread sanitizer cannot know that.
#ifdef __SANITIZE_THREAD__
  static constexpr bool kReadsBeyond = false;
#else
  static constexpr bool kReadsBeyond = kPacked;
#endif
  static constexpr int kCount = kRows * kVecs;
  static constexpr std::make_integer_sequence<int, kCount> kAll{};

  template <int... I>
  static HWY_INLINE void Zero(V (&acc)[kCount], std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(D())), ...);
  }
  // x86 addresses 8 rows from one register and the odd multiples of their distance up to 7.
  struct Cursor {
    Cursor(const MicroKernelArgs& t, std::int64_t p)
        : a_outer(t.a_outer),
          a_inner(kPacked ? kRows : t.a_inner),
          ldb(t.ldb),
          prefetch_step(t.prefetch_step),
          a(t.a + p * a_inner),
          a_high(kRows > 8 ? a + 8 * t.a_outer : a),
          b(t.b + p * t.ldb),
          prefetch(t.prefetch + p * t.prefetch_step) {}
    std::int64_t a_outer, a_inner, ldb, prefetch_step;
    const float* HWY_RESTRICT a;
    const float* HWY_RESTRICT a_high;  // of row 8
    const float* HWY_RESTRICT b;
    const float* prefetch;
  };
  template <class Last>
  static HWY_INLINE void Sum(V (&acc)[kCount], const MicroKernelArgs& t, const Last& last) {
    if constexpr (kCount <= 8) {
      EvenAndOddSteps(acc, t, last);
    } else {
      Steps(acc, t, last);
    }
    if (t.alpha != 1) Scale(acc, hn::Set(D(), t.alpha), kAll);
  }
  // Too few sums to hide the latency of an FMA: even and odd k apart.
  template <class Last>
  static HWY_INLINE void EvenAndOddSteps(V (&acc)[kCount], const MicroKernelArgs& t,
                                         const Last& last) {
    Zero(acc, kAll);
    Cursor at(t, 0);
    V odd[kCount];
    Zero(odd, kAll);
    std::int64_t p = t.k;
    for (; p >= 2; p -= 2) {
      Step(acc, at, last);
      Step(odd, at, last);
    }
    if (p > 0) Step(acc, at, last);
    Add(acc, odd, kAll);
  }
  // All k. Where it is long enough, c's lines are prefetched meanwhile, one every eight steps: all
  // at once, from beyond L2, they occupy L1's fill buffers, and the B micro-panel waits in L2.
  // Where it is not, and c is read, so many every eight steps that half of k is left for the last.
  template <class Last>
  static HWY_INLINE void Steps(V (&acc)[kCount], const MicroKernelArgs& t, const Last& last) {
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(D()));
    std::int64_t p = 0;
    const bool prefetch_c = t.k >= 8 * kCount || (t.beta != 0 && t.k >= 2 * kCount);
    if (kPrefetch > 0 && !prefetch_c) {
      Cursor at(t, 0);
      Step<true>(acc, at, last);
      p = 1;
    } else {
      Zero(acc, kAll);
      const std::int64_t lines = prefetch_c ? kCount : 0;
      const std::int64_t each = t.k >= 8 * lines ? 1 : pieces(2 * 8 * lines, t.k);
      const std::int64_t chunks = kPrefetch == 0 ? t.k / 8 : pieces(lines, each);
      std::int64_t line = 0;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        for (const std::int64_t end = std::min(lines, line + each); line < end; ++line) {
          hwy::Prefetch(t.c + line / kVecs * t.ldc + line % kVecs * lanes);
        }
        if constexpr (kPacked) {
          t.queues[0].Issue();
          t.queues[1].Issue();
        }
        Cursor at(t, p);
        p += 8;
#pragma GCC unroll 4
        for (int steps = 8; steps > 0; --steps) Step(acc, at, last);
      }
    }
    Cursor at(t, p);
#pragma GCC unroll 4
    for (std::int64_t steps = t.k - p; steps > 0; --steps) Step(acc, at, last);
  }
  template <class Last, int... J>
  static HWY_INLINE void LoadB(V (&bv)[kVecs], const float* b, const Last& last_vector,
                               std::integer_sequence<int, J...>) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    ((bv[J] = hc::InRegister<kRows>(hn::LoadU(d, b + J * lanes))), ...);
    bv[kVecs - 1] = hc::InRegister<kRows>(last_vector.Load(d, b + (kVecs - 1) * lanes));
  }
  template <bool kFirst = false, class Last>
  static HWY_INLINE void Step(V (&acc)[kCount], Cursor& at, const Last& last) {
    if constexpr (kVecs > kNv + 1) {
      MultiplyRow<kFirst>(acc, at, last, std::make_integer_sequence<int, kRows>(),
                          std::make_integer_sequence<int, kVecs>());
    } else {
      V bv[kVecs];
      LoadB(bv, at.b, last, std::make_integer_sequence<int, kVecs - 1>());
      Multiply<kFirst, Last>(acc, at, bv, kAll);
    }
    for (int line = 0; line < kPrefetch; ++line) __builtin_prefetch(at.prefetch + 16 * line, 0, 2);
    at.prefetch += at.prefetch_step;
    at.a += at.a_inner;
    if constexpr (kRows > 8) at.a_high += at.a_inner;
    at.b += at.ldb;
  }
  // acc + a·b, or, of a first product, a·b (which may be -0).
  template <bool kFirst, bool kLower = false>
  static HWY_INLINE void AddProduct(V a, V b, V& acc) {
#if ROOFLANE_LOWER_PART
    if constexpr (kLower) {
      if constexpr (kFirst) {
        acc = Widened(hn::Mul(Lower(a), Lower(b)));
      } else {
        acc = Widened(hn::MulAdd(Lower(a), Lower(b), Lower(acc)));
      }
      return;
    }
#endif
    if constexpr (kFirst) {
      acc = hn::Mul(a, b);
    } else {
      acc = hn::MulAdd(a, b, acc);
    }
  }
  template <bool kFirst, class Last, int... I>
  static HWY_INLINE void Multiply(V (&acc)[kCount], const Cursor& at, const V (&bv)[kVecs],
                                  std::integer_sequence<int, I...>) {
    (MultiplyOne<kFirst, Last, I / kVecs, I % kVecs>(at, bv, acc[I]), ...);
  }
  template <bool kFirst, class Last, int kRow, int kVec>
  static HWY_INLINE void MultiplyOne(const Cursor& at, const V (&bv)[kVecs], V& acc) {
    const V a = hn::Set(D(), Element<kRow>(at.a, at.a_high, at.a_outer));
    AddProduct<kFirst, Last::kLower && kVec == kVecs - 1>(a, bv[kVec], acc);
  }
  // The same, b's vectors one after the other: they are more than a's values.
  template <bool kFirst, class Last, int... R, int... J>
  static HWY_INLINE void MultiplyRow(V (&acc)[kCount], const Cursor& at, const Last& last,
                                     std::integer_sequence<int, R...> rows,
                                     std::integer_sequence<int, J...>) {
    const V av[kRows] = {hn::Set(D(), Element<R>(at.a, at.a_high, at.a_outer))...};
    (MultiplyVector<kFirst, J>(acc, av, at.b, last, rows), ...);
  }
  template <bool kFirst, int kVec, class Last, int... R>
  static HWY_INLINE void MultiplyVector(V (&acc)[kCount], const V (&av)[kRows], const float* b,
                                        const Last& last, std::integer_sequence<int, R...>) {
    const D d;
    const float* from = b + kVec * static_cast<std::int64_t>(hn::Lanes(d));
    const V bv =
        hc::InRegister<kRows>(kVec == kVecs - 1 ? last.Load(d, from) : V(hn::LoadU(d, from)));
    (AddProduct<kFirst>(av[R], bv, acc[R * kVecs + kVec]), ...);
  }
  template <int... I>
  static HWY_INLINE void Scale(V (&acc)[kCount], V factor, std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Mul(acc[I], factor)), ...);
  }
  template <int... I>
  static HWY_INLINE void Add(V (&acc)[kCount], const V (&more)[kCount],
                             std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Add(acc[I], more[I])), ...);
  }
  template <int kRow>
  static HWY_INLINE float Element(const float* a, const float* a_high, std::int64_t a_outer) {
    return (kRow < 8 ? a : a_high)[kRow % 8 * (kPacked ? 1 : a_outer)];
  }
  // The last vectors of rows as `last` says: stored as parts even if whole they would take longer,
  // most of all without masked stores.
  template <class Last>
  static HWY_INLINE void Write(const V (&acc)[kCount], const MicroKernelArgs& t, const Last& last) {
    constexpr std::make_integer_sequence<int, kRows> rows{};
    if (t.beta != 0) {
      WriteRows<true>(acc, t, last, rows);
    } else {
      WriteRows<false>(acc, t, last, rows);
    }
  }
  template <bool kAdds, class Last, int... R>
  static HWY_INLINE void WriteRows(const V (&acc)[kCount], const MicroKernelArgs& t,
                                   const Last& last, std::integer_sequence<int, R...>) {
    // In registers, as stores of vectors might change what MicroKernelArgs holds.
    const std::int64_t ldc = t.ldc, ldc0 = t.ldc0;
    const V beta = hn::Set(D(), t.beta);
    float* c = t.c;
    const float* c0 = t.c0;
    ((WriteRow<kAdds, R>(acc, c, c0, beta, last, std::make_integer_sequence<int, kVecs>()),
      c += ldc, c0 += ldc0),
     ...);
  }
  template <bool kAdds, int kRow, class Last, int... J>
  static HWY_INLINE void WriteRow(const V (&acc)[kCount], float* c, const float* c0, V beta,
                                  const Last& last, std::integer_sequence<int, J...>) {
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(D()));
    (WriteOne<kAdds, J == kVecs - 1>(acc[kRow * kVecs + J], c + J * lanes, c0 + J * lanes, beta,
                                     last),
     ...);
  }
  template <bool kAdds, bool kLast, class Last>
  static HWY_INLINE void WriteOne(V sum, float* to, const float* from, V beta, const Last& last) {
    const D d;
    if constexpr (kAdds) {
      sum = hn::MulAdd(beta, kLast ? last.Load(d, from) : V(hn::LoadU(d, from)), sum);
    }
    if constexpr (kLast) {
      last.Store(sum, d, to);
    } else {
      hn::StoreU(sum, d, to);
    }
  }
};

using MicroKernelFunction = void (*)(const MicroKernelArgs&);

template <bool kPacked, int kPrefetch, int kRows, int kVecs>
constexpr MicroKernelFunction MicroKernelOrNone() {
  if constexpr (kPacked ? kRows <= kMr && kVecs <= kNv : kRows <= TallRows(kVecs)) {
    return &MicroKernel<DF, kRows, kVecs, kPacked, kPrefetch>::Compute;
  } else {
    return nullptr;
  }
}
template <bool kPacked, int kPrefetch, std::size_t... I>
constexpr std::array<MicroKernelFunction, sizeof...(I)> MakeMicroKernels(
    std::index_sequence<I...>) {
  return {MicroKernelOrNone<kPacked, kPrefetch, static_cast<int>(I) / kMaxNv + 1,
                            static_cast<int>(I) % kMaxNv + 1>()...};
}

// The micro-kernel for `rows` (1 to kMr, or to TallRows(vectors) where not packed) and `vectors` (1
// to kNv, or kMaxNv where not packed).
template <bool kPacked, int kPrefetch>
MicroKernelFunction MicroKernelFor(std::int64_t rows, std::int64_t vectors) {
  static constexpr auto tiles =
      MakeMicroKernels<kPacked, kPrefetch>(std::make_index_sequence<TallRows(1) * kMaxNv>());
  return tiles[static_cast<std::size_t>((rows - 1) * kMaxNv + vectors - 1)];
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

// Packs micro-panels [first,last) of x, whichever way x lies. Micro-panel q holds the outer indices
// [begin(q), begin(q+1)) for p in [0,inners) as [inners][width], and begins at
// to + begin(q)·inners.
template <class Begin>
void PackMicroPanels(const float* from, const MatrixView& x, std::int64_t inners,
                     std::int64_t first, std::int64_t last, const Begin& begin, float* to) {
  if (x.inner == 1) {
    for (std::int64_t q = first; q < last; ++q) {
      const std::int64_t i = begin(q), width = begin(q + 1) - i;
      PackTransposed(from + i * x.outer, x.outer, width, inners, to + i * inners, width);
    }
    return;
  }
  // x is contiguous across micro-panels: a few rows of all of them at a time, so that lines shared
  // by two are read once and the hardware prefetcher sees long runs. Software prefetches of the
  // next rows only took L1's fill buffers from it: on a Sapphire Rapids 8 instead of 18 GB/s.
  for (std::int64_t p = 0; p < inners; p += 4) {
    const std::int64_t rows = std::min<std::int64_t>(4, inners - p);
    for (std::int64_t q = first; q < last; ++q) {
      const std::int64_t i = begin(q), width = begin(q + 1) - i;
      PackRows(from + p * x.inner + i * x.outer, x.inner, rows, width, to + i * inners + p * width,
               width);
    }
  }
}

// to[i·ldt + p] = x(i,p): rows contiguous along k.
inline void PackAlongK(const float* from, const MatrixView& x, std::int64_t outers,
                       std::int64_t inners, float* to, std::int64_t ldt) {
  if (x.inner == 1) {
    PackRows(from, x.outer, outers, inners, to, ldt);
  } else {
    PackTransposed(from, x.inner, inners, outers, to, ldt);
  }
}

// Columns cut into micro-panels of the widest micro-tile of kMr rows.
inline MicroPanels AllOf(std::int64_t n) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(DF()));
  return {n, kNv * lanes, lanes};
}

inline MicroTile Registers() {
  return {static_cast<std::int64_t>(hn::Lanes(DF())), kMr, kNv, kRunNv};
}

// Where c starts from: beta·c0 for the first block of k, what earlier blocks left in c afterwards.
struct Start {
  const float* data;
  std::int64_t ld;
  float beta;
};
inline Start StartOf(const Job& job, bool first_block, std::int64_t batch, std::int64_t row,
                     std::int64_t col) {
  if (!first_block) return {job.c.row(batch, row) + col, job.c.ld, 1.0f};
  if (!job.g.reads_c0()) return {nullptr, 0, 0.0f};
  return {job.c0.row(batch, row) + col, job.c0.ld, job.g.beta};
}

// Sums [rows,cols], rows ld floats apart.
struct SumRows {
  const float* data;
  std::int64_t ld, rows, cols;
};

// c = alpha · sums + what it starts from, from its row `row` and column `col` on.
inline void StoreRows(const Job& job, bool first_block, std::int64_t batch, std::int64_t row,
                      std::int64_t col, const SumRows& sums) {
  const DF d;
  const Start start = StartOf(job, first_block, batch, row, col);
  const VF alpha = hn::Set(d, job.g.alpha), beta = hn::Set(d, start.beta);
  for (std::int64_t i = 0; i < sums.rows; ++i) {
    const float* const from = sums.data + i * sums.ld;
    const float* const c0 = start.data + i * start.ld;
    float* const c = job.c.row(batch, row + i) + col;
    ForVectors(sums.cols, [&](std::int64_t j, const auto& loader) HWY_ATTR {
      VF v = hn::Mul(alpha, loader.Load(d, from + j));
      if (start.beta != 0) v = hn::MulAdd(beta, loader.Load(d, c0 + j), v);
      loader.Store(v, d, c + j);
    });
  }
}

// The same of the transpose of sums; where it is more than a copy, by way of L1.
inline void StoreTransposed(const Job& job, bool first_block, std::int64_t batch, std::int64_t row,
                            std::int64_t col, const SumRows& sums) {
  if (job.g.alpha == 1 && StartOf(job, first_block, batch, row, col).beta == 0) {
    float* const c = job.c.row(batch, row) + col;
    return PackTransposed(sums.data, sums.ld, sums.rows, sums.cols, c, job.c.ld);
  }
  constexpr std::int64_t most = 48;
  HWY_ALIGN float block[most * most];
  for (std::int64_t i = 0; i < sums.rows; i += most) {
    const std::int64_t cols = std::min(most, sums.rows - i);
    for (std::int64_t j = 0; j < sums.cols; j += most) {
      const std::int64_t rows = std::min(most, sums.cols - j);
      PackTransposed(sums.data + i * sums.ld + j, sums.ld, cols, rows, block, most);
      StoreRows(job, first_block, batch, row + j, col + i, {block, most, rows, cols});
    }
  }
}

#undef ROOFLANE_LOWER_PART

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
