// The last columns of a hwy GEMM, too few to fill a vector along them, for the ISA target being
// compiled: dot products along k, or, where a lies across k, vectors down the columns.
#if defined(ROOFLANE_GEMM_HWY_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_TAIL_INL_H_
#undef ROOFLANE_GEMM_HWY_TAIL_INL_H_
#else
#define ROOFLANE_GEMM_HWY_TAIL_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/gemm/hwy_blocks-inl.h"
#include "kernels/gemm/hwy_dot-inl.h"
#include "kernels/gemm/hwy_job.hpp"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;

// The columns from job.cols on of rows [first,last) of one batch.
struct TailRows {
  int64_t batch, first, last;
};

// With b's columns, turned.
inline void TailByDots(const Job& job, const TailRows& at, float* scratch) {
  const Gemm& g = job.g;
  const Side &a = job.a, &b = job.b;
  PackAlongK(b.data + at.batch * b.batch_stride + job.cols * b.outer, b, job.tail, g.k, scratch,
             g.k);
  const Start start = StartOf(job, true, at.batch, at.first, job.cols);
  DotArgs t;
  t.few = scratch;
  t.few_ld = g.k;
  t.many = a.data + at.batch * a.batch_stride + at.first * a.outer;
  t.many_ld = a.outer;
  t.k = g.k;
  t.c0 = start.data;
  t.c0_few = 1;
  t.c0_many = start.ld;
  t.c = job.c.row(at.batch, at.first) + job.cols;
  t.c_few = 1;
  t.c_many = job.c.ld;
  t.alpha = g.alpha;
  t.beta = start.beta;
  const int64_t most = DotMany(static_cast<int>(job.tail));
  for (int64_t row = at.first; row < at.last; row += most) {
    const int64_t rows = std::min(most, at.last - row);
    DotFor(job.tail, rows)(t);
    t.many += rows * t.many_ld;
    t.c += rows * t.c_many;
    if (t.beta != 0) t.c0 += rows * t.c0_many;
  }
}

// c [rows, kCols] = alpha · Σ_p a(p,i)·b(p,j) + beta · c0. beta = 0: c0 is not read. c0 may be c.
struct DownArgs {
  const float* a;  // [k, rows], rows of it lda apart
  int64_t lda;
  const float* b;  // b(p,j) is b[p·b_inner + j·b_outer]
  int64_t b_inner, b_outer;
  int64_t k, rows;
  const float* c0;
  int64_t ldc0;
  float* c;
  int64_t ldc;
  float alpha, beta;
};

// Sums of kCols columns as vectors down them: an element of c costs a lane of an FMA for each k,
// of a tile's part of a vector one of all its lanes.
template <int kCols>
class Down {
 public:
  static void Compute(DownArgs t) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF())), rows = kVecs * lanes;
    for (; t.rows >= rows; t.rows -= rows) {
      Block<kVecs>(t, Whole());
      t.a += rows;
      t.c += rows * t.ldc;
      if (t.beta != 0) t.c0 += rows * t.ldc0;
    }
    if (t.rows == 0) return;
    const int64_t vectors = (t.rows + lanes - 1) / lanes;
    Rest(t, vectors, std::make_integer_sequence<int, kVecs>());
  }

 private:
  // Enough sums to hide the latency of an FMA.
  static constexpr bool kManyRegisters = kMr * kNv >= 24;
  static constexpr int kVecs = kCols == 1                                     ? 8
                               : kCols == 2 || (kCols <= 4 && kManyRegisters) ? 4
                               : kCols <= 4 || kManyRegisters                 ? 2
                                                                              : 1;
  static constexpr int kFirst = std::min(kCols, 4);  // what is turned together
  static constexpr std::make_integer_sequence<int, kCols> kAllCols{};

  // Fewer rows than a block: so many vectors, the last one partly there.
  template <int... kLess>
  static HWY_INLINE void Rest(const DownArgs& t, int64_t vectors,
                              std::integer_sequence<int, kLess...>) {
    const DF d;
    const int64_t before = (vectors - 1) * static_cast<int64_t>(hn::Lanes(d));
    const Part part(d, static_cast<std::size_t>(t.rows - before));
    ((vectors == kLess + 1 ? Block<kLess + 1>(t, part) : void()), ...);
  }
  template <int kCount, class Last>
  static HWY_INLINE void Block(const DownArgs& t, const Last& last) {
    constexpr std::make_integer_sequence<int, kCount> vectors{};
    VF acc[kCount * kCols];
    Zero(acc, std::make_integer_sequence<int, kCount * kCols>());
    const float *a = t.a, *b = t.b;
    for (int64_t p = t.k; p > 0; --p) {
      Step(acc, a, b, t.b_outer, last, std::make_integer_sequence<int, kCount - 1>());
      a += t.lda;
      b += t.b_inner;
    }
    Write(acc, t, vectors);
  }
  template <int kAll, int... I>
  static HWY_INLINE void Zero(VF (&acc)[kAll], std::integer_sequence<int, I...>) {
    ((acc[I] = hn::Zero(DF())), ...);
  }
  template <int kAll, class Last, int... V>
  static HWY_INLINE void Step(VF (&acc)[kAll], const float* a, const float* b, int64_t b_outer,
                              const Last& last, std::integer_sequence<int, V...>) {
    const DF d;
    constexpr int count = sizeof...(V) + 1;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const VF av[] = {hc::InRegister<kCols>(hn::LoadU(d, a + V * lanes))...,
                     hc::InRegister<kCols>(last.Load(d, a + (count - 1) * lanes))};
    Columns<count>(acc, av, b, b_outer, kAllCols);
  }
  template <int kCount, int kAll, int... J>
  static HWY_INLINE void Columns(VF (&acc)[kAll], const VF (&av)[kCount], const float* b,
                                 int64_t b_outer, std::integer_sequence<int, J...>) {
    (Column<J>(acc, av, hn::Set(DF(), b[J * b_outer]), std::make_integer_sequence<int, kCount>()),
     ...);
  }
  template <int kCol, int kCount, int kAll, int... V>
  static HWY_INLINE void Column(VF (&acc)[kAll], const VF (&av)[kCount], VF b,
                                std::integer_sequence<int, V...>) {
    ((acc[V * kCols + kCol] = hn::MulAdd(av[V], b, acc[V * kCols + kCol])), ...);
  }
  template <int kAll, int... V>
  static HWY_INLINE void Write(VF (&acc)[kAll], const DownArgs& t,
                               std::integer_sequence<int, V...>) {
    (WriteRows(&acc[V * kCols], t, V * static_cast<int64_t>(hn::Lanes(DF()))), ...);
  }

  // A vector of rows from row i on. Where c's rows follow each other they are one run of floats.
  static HWY_INLINE void WriteRows(const VF* sums, const DownArgs& t, int64_t i) {
    const DF d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), rows = std::min(lanes, t.rows - i);
    const VF alpha = hn::Set(d, t.alpha);
    float* c = t.c + i * t.ldc;
    if (kCols <= 4 && rows == lanes && t.ldc == kCols && t.beta == 0) {
      Interleave(sums, alpha, c, std::make_integer_sequence<int, kFirst>());
      return;
    }
    HWY_ALIGN float first[kFirst * hn::MaxLanes(d)];
    Interleave(sums, alpha, first, std::make_integer_sequence<int, kFirst>());
    WriteTurned<kFirst>(first, rows, t, i, 0);
    if constexpr (kCols > kFirst) {
      constexpr int kRest = kCols - kFirst;
      HWY_ALIGN float rest[kRest * hn::MaxLanes(d)];
      Interleave(sums + kFirst, alpha, rest, std::make_integer_sequence<int, kRest>());
      WriteTurned<kRest>(rest, rows, t, i, kFirst);
    }
  }
  // kCount columns of c, from row i and column j on.
  template <int kCount>
  static HWY_INLINE void WriteTurned(const float* from, int64_t rows, const DownArgs& t, int64_t i,
                                     int64_t j) {
    float* c = t.c + i * t.ldc + j;
    const float* c0 = t.beta == 0 ? c : t.c0 + i * t.ldc0 + j;
    for (int64_t row = 0; row < rows; ++row, from += kCount, c += t.ldc) {
      if (t.beta == 0) {
        std::memcpy(c, from, kCount * sizeof(float));
      } else {
        for (int q = 0; q < kCount; ++q) c[q] = from[q] + t.beta * c0[q];
        c0 += t.ldc0;
      }
    }
  }
  template <int... J>
  static HWY_INLINE void Interleave(const VF* sums, VF alpha, float* to,
                                    std::integer_sequence<int, J...>) {
    const DF d;
    const VF v[] = {hn::Mul(alpha, sums[J])...};
    if constexpr (sizeof...(J) == 1) {
      hn::StoreU(v[0], d, to);
    } else if constexpr (sizeof...(J) == 2) {
      hn::StoreInterleaved2(v[0], v[1], d, to);
    } else if constexpr (sizeof...(J) == 3) {
      hn::StoreInterleaved3(v[0], v[1], v[2], d, to);
    } else {
      static_assert(sizeof...(J) == 4);
      hn::StoreInterleaved4(v[0], v[1], v[2], v[3], d, to);
    }
  }
};

template <int... kLess>
void DownFor(int64_t cols, const DownArgs& t, std::integer_sequence<int, kLess...>) {
  static constexpr void (*functions[])(DownArgs) = {Down<kLess + 1>::Compute...};
  functions[cols - 1](t);
}

// Where a lies across k.
inline void TailDown(const Job& job, const TailRows& at) {
  const Gemm& g = job.g;
  const Side &a = job.a, &b = job.b;
  const Start start = StartOf(job, true, at.batch, at.first, job.cols);
  DownArgs t;
  t.a = a.data + at.batch * a.batch_stride + at.first;
  t.lda = a.inner;
  t.b = b.data + at.batch * b.batch_stride + job.cols * b.outer;
  t.b_inner = b.inner;
  t.b_outer = b.outer;
  t.k = g.k;
  t.rows = at.last - at.first;
  t.c0 = start.data;
  t.ldc0 = start.ld;
  t.c = job.c.row(at.batch, at.first) + job.cols;
  t.ldc = job.c.ld;
  t.alpha = g.alpha;
  t.beta = start.beta;
  DownFor(job.tail, t, std::make_integer_sequence<int, most_down>());
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
