// LayerNorm, kCentred, and RMSNorm with Highway, for every element type: which rows are worked on
// together, in cache and beyond it. One row: norm_row-inl.h; short ones: norm_short-inl.h.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_NORM_ROWS_INL_H_
#undef ROOFLANE_KERNELS_COMMON_NORM_ROWS_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_NORM_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/float16.hpp"
#include "hwy/highway.h"
#include "kernels/common/norm_plan.hpp"
#include "kernels/common/norm_row-inl.h"
#include "kernels/common/norm_short-inl.h"
#include "kernels/common/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// Rows that stay in L1 while PipelinedRows works on them: x of three, y of one, gamma and beta take
// no more than three quarters of it. (With 2048 elements, which fill 48 KiB, that was 6 to 19 %
// slower on a Zen 5 than one row after the other, with 3000 24 %; on a Zen 4 of 32 KiB 16 % with
// 1536.) By halves one after the other is faster sooner: 0.93 to 0.95 with 300 to 512 elements,
// 1.00 with 640, 1.05 or more with 1024.
template <bool kHalves>
bool pipelined(std::size_t row_bytes) {
  return (kHalves ? 10 : 8) * row_bytes <= machine().l1d_bytes;
}

// What Finish gives, and the sums of the n elements at `after`, vector by vector: conversions and
// additions of one row and loads, products and stores of the other share the units well. Prefetches
// the n elements at `upcoming` meanwhile: on a Zen 5 worth 4 to 9 % where rows come from L3, a loss
// of 3 % where they come from L2. (Prefetching the next row of y, which stores will want, lost 4 to
// 14
// %.)
template <class Io>
HWY_INLINE RowSums FinishAndSum(const Io& io, std::int64_t at, std::size_t n, const Mapping& row,
                                typename Io::Row after, const void* upcoming) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr std::size_t bytes = sizeof(typename Io::Element);
  const auto result = ResultOf<true>(io.x_row(at), io.gamma, io.beta, row);
  typename Io::Element* y = io.y_row(at);
  const auto write = [&](std::size_t i, auto fill)
                         ROOFLANE_LAMBDA { StoreElements(result(i, fill), d, y + i, fill); };
  RowVisit<WholeSummer> visit(after, n);
  std::size_t i = 0;
  while (i + 2 * lanes <= n) {
    for (const std::size_t stop = std::min(n, i + 64 * lanes); i + 2 * lanes <= stop;
         i += 2 * lanes) {
      hwy::Prefetch(static_cast<const char*>(upcoming) + i * bytes);
      hwy::Prefetch(static_cast<const char*>(upcoming) + (i + lanes) * bytes);
      visit.AddTwo(after + i, lanes);
      write(i, Whole());
      write(i + lanes, Whole());
    }
    visit.Settle();
  }
  const RowSums sums = visit.End(after + i, n - i, lanes);
  if (i + lanes <= n) {
    write(i, Whole());
    i += lanes;
  }
  if (i < n) write(i, Part{n - i});
  return sums;
}

// Rows that stay in L1 (see pipelined), from `begin` to `end`. While a row
// is written, the row two after it is summed: what the sums of the row in between end in (adding up
// lanes, square root, divisions, some 100 cycles one after the other) is done meanwhile.
template <class Io>
std::int64_t PipelinedRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                           double eps) {
  const auto mapping = [=](const RowSums& sums, const auto& x)
                           ROOFLANE_LAMBDA { return Mapping(MomentsFrom(sums, x, n, eps), eps); };
  const auto row_at = [&](std::int64_t at) ROOFLANE_LAMBDA {
    const auto x = io.x_row(at);
    const auto nothing = [](std::size_t) ROOFLANE_LAMBDA {};
    return mapping(SumAndSquares<false>(x, n, NoPrefetch(), nothing), x);
  };
  Mapping now = row_at(begin);
  Mapping next = begin + 1 < end ? row_at(begin + 1) : now;
  for (std::int64_t at = begin; at < end; ++at) {
    Mapping after = next;
    if (HWY_UNLIKELY(now.wide)) return at;
    if (at + 2 < end) {
      const auto x = io.x_row(at + 2);
      after = mapping(FinishAndSum(io, at, n, now, x, io.x + (at + 3) * io.x_stride), x);
    } else {
      WriteElements<false>(Tag(), io.y_row(at), n,
                           ResultOf<true>(io.x_row(at), io.gamma, io.beta, now));
    }
    now = next;
    next = after;
  }
  return end;
}

template <std::size_t kRows, bool kHalves, class Io>
HWY_INLINE bool RowGroup(const Io& io, std::int64_t at, std::size_t n, double eps) {
  Mapping rows[kRows];
  bool wide = false;
  for (std::size_t i = 0; i < kRows; ++i) {
    const auto x = io.x_row(at + static_cast<std::int64_t>(i));
    rows[i] = Mapping(MomentsOfBlocks<true, kHalves>(x, n, eps, false), eps);
    wide |= rows[i].wide;
  }
  if (HWY_UNLIKELY(wide)) return false;
  FinishTogether<true>(io, at, n, rows, std::make_index_sequence<kRows>());
  return true;
}

// Rows of any length from `begin` to `end`, four together, or two where there are 16 registers.
// Each is visited twice.
template <bool kHalves, class Io>
std::int64_t GroupedRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                         double eps) {
  std::int64_t at = begin;
  if constexpr (HWY_TARGET <= HWY_AVX3) {
    for (; at + 4 <= end; at += 4) {
      if (!RowGroup<4, kHalves>(io, at, n, eps)) return at;
    }
  }
  for (; at + 2 <= end; at += 2) {
    if (!RowGroup<2, kHalves>(io, at, n, eps)) return at;
  }
  return at < end && RowGroup<1, kHalves>(io, at, n, eps) ? end : at;
}

// Rows of at most kBlock elements from `begin` to `end`. If the elements are shorter than float32
// and two rows stay in L1, each row is summed before the row in front of it is written: the
// dependent operations that end a sum (adding up lanes, square root, divisions) overlap with the
// writing. (Slower on a Zen 5 with float32, and in LayerNorm past the caches with any type.) Beyond
// the caches, `policy` prefetches while a row is summed. (Slower on a Zen 5 while a row is
// written.)
template <bool kCentred, bool kStream, bool kHalves, class Io, class Policy>
std::int64_t CachedRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                        double eps, Policy policy) {
  const Tag d;
  StoreCarry<Tag, typename Io::Element> carry;
  constexpr bool may_lag = sizeof(typename Io::Element) < sizeof(float) && !(kStream && kCentred);
  const std::int64_t lag = may_lag && pipelined<false>(n * sizeof(float)) ? 1 : 0;
  Mapping now, next;
  std::int64_t at = begin - lag;  // the row to write
  for (; at < end; ++at) {
    if (at + lag < end) {
      const auto x = io.x_row(at + lag);
      next = MappingOfBlock<kCentred, kHalves>(x, n, eps, policy);
    }
    if (lag == 0) now = next;
    if (at >= begin) {
      if (HWY_UNLIKELY(now.wide)) break;
      const auto result = ResultOf<kCentred>(io.x_row(at), io.gamma, io.beta, now);
      if constexpr (kStream) {
        StreamRow(d, io.y_row(at), n, carry, result);
      } else {
        WriteElements<false>(d, io.y_row(at), n, result);
      }
    }
    now = next;
  }
  carry.Close();
  if constexpr (kStream) hwy::FlushStream();
  return at;
}

// Rows of any length from `begin` to `end`, each visited twice.
template <bool kCentred, bool kStream, class Io>
std::int64_t LongRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n, double eps,
                      bool pages) {
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const auto x = io.x_row(at);
    const Mapping row(MomentsOfBlocks<kCentred, false>(x, n, eps, pages), eps);
    if (HWY_UNLIKELY(row.wide)) break;
    WriteElements<kStream>(Tag(), io.y_row(at), n, ResultOf<kCentred>(x, io.gamma, io.beta, row));
  }
  if constexpr (kStream) hwy::FlushStream();
  return at;
}

// Rows in the caches, from `begin` to `end`. Elements shorter than float32 are stored two vectors
// at a time, which other work in between does not go with.
template <bool kCentred, bool kHalves, class Io>
std::int64_t InCacheRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                         double eps) {
  constexpr bool is_float = std::is_same_v<typename Io::Element, float>;
  if constexpr (kCentred && is_float) {
    const std::size_t row_bytes = n * sizeof(float);
    if (grouped(row_bytes)) return GroupedRows<kHalves>(io, begin, end, n, eps);
    if (pipelined<kHalves>(row_bytes)) return PipelinedRows(io, begin, end, n, eps);
  }
  if (n > kBlock) return LongRows<kCentred, false>(io, begin, end, n, eps, false);
  return CachedRows<kCentred, false, kHalves>(io, begin, end, n, eps, NoPrefetch());
}

// Rows beyond the caches, from `begin` to `end`, where L2 keeps four rows. In steps: while a row is
// summed and later elements are prefetched into L2, the row before it is written, so that memory
// reads and writes at the same time. (Slower on a Zen 5 with lines prefetched into L1, as
// CachedRows does.)
template <bool kCentred, class Io, class Policy>
std::int64_t InterleavedRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                             double eps, Policy policy) {
  const Tag d;
  StoreCarry<Tag, typename Io::Element> carry;
  const auto write = [&](std::int64_t at, std::size_t count, const Mapping& row) ROOFLANE_LAMBDA {
    return InterleavedStream(d, io.y_row(at), count, carry,
                             ResultOf<kCentred>(io.x_row(at), io.gamma, io.beta, row),
                             std::bool_constant<!kCentred>());
  };
  Mapping row;
  std::int64_t at = begin;
  for (; at < end; ++at) {
    const auto x = io.x_row(at);
    const bool is_first = at == begin;
    auto before = write(is_first ? at : at - 1, is_first ? 0 : n, row);  // 0: none yet
    before.Start();
    Moments whole;
    const std::size_t length = BlockOf<kCentred>(n);
    for (std::size_t block = 0; block < n; block += length) {
      const std::size_t count = std::min(length, n - block);
      whole = merge(whole, MomentsOfBlock<kCentred, false>(x + block, count, eps, policy,
                                                           [&](std::size_t summed) ROOFLANE_LAMBDA {
                                                             before.EightUpTo(block + summed);
                                                           }));
    }
    before.UpTo(n);
    const Mapping summed(whole, eps);
    if (HWY_UNLIKELY(summed.wide)) break;
    row = summed;
  }
  // If a row broke off, the one before it has been written.
  if (at == end) write(end - 1, n, row).UpTo(n);
  carry.Close();
  hwy::FlushStream();
  return at;
}

// Rows that are not short, from `begin` to `end`, past the caches.
template <bool kCentred, class Io>
std::int64_t StreamedRows(const Io& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
                          double eps, Prefetch prefetch) {
  const auto n = static_cast<std::size_t>(cols);
  const bool pages = prefetch == Prefetch::pages;
  const void* last = io.last_before(end, n);
  const PrefetchIntoL2 into_l2 = {io.prefetch_distance(n), last};
  if (pages && keeps_four_rows(cols)) {
    return InterleavedRows<kCentred>(io, begin, end, n, eps, PrefetchPages{last});
  }
  if (n > kBlock) return LongRows<kCentred, true>(io, begin, end, n, eps, pages);
  if (prefetch == Prefetch::into_l1) {
    // LayerNorm's sums take longer, and a row ahead is in time.
    const PrefetchIntoL1 later = {kCentred ? io.x_bytes() : into_l2.distance, last};
    return CachedRows<kCentred, true, false>(io, begin, end, n, eps, later);
  }
  if (keeps_three_rows_in_l1(machine(), cols)) {
    return InterleavedRows<kCentred>(io, begin, end, n, eps, into_l2);
  }
  return CachedRows<kCentred, true, false>(io, begin, end, n, eps, into_l2);
}

// Rows from `begin` to `end`, up to the first that only double can compute: the loops end there,
// because a call inside them would cost them their registers. Returns how far they came.
// `access.stream` must not change y's bits.
template <bool kCentred, class Io>
std::int64_t OrdinaryRows(const Io& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
                          double eps, const RowAccess& access) {
  const auto n = static_cast<std::size_t>(cols);
  if constexpr (kHasShortRows) {
    if (is_short(io, n, access.beyond_caches)) {
      return ShortRows<kCentred>(io, begin, end, n, eps, access.stream, access.prefetch);
    }
  }
  if constexpr (kStreams) {
    if (access.stream) return StreamedRows<kCentred>(io, begin, end, cols, eps, access.prefetch);
  }
  if constexpr (HWY_TARGET <= HWY_AVX3 && kCentred && Io::is_plain) {
    if (access.halves) return InCacheRows<kCentred, true>(io, begin, end, n, eps);
  }
  return InCacheRows<kCentred, false>(io, begin, end, n, eps);
}

template <bool kCentred, class Io>
void NormRows(const AnyRows& any, std::int64_t begin, std::int64_t end, std::int64_t cols,
              double eps, const RowAccess& access) {
  const Io io(any);
  for (; begin < end; ++begin) {
    begin = OrdinaryRows<kCentred>(io, begin, end, cols, eps, access);
    if (begin < end) WideRow<kCentred>(io, begin, static_cast<std::size_t>(cols), eps);
  }
}

// The moments of a part of a row.
template <bool kCentred, class Io>
Moments PartOfNorm(const AnyRows& any, std::int64_t row, const Slice& slice, double eps,
                   bool pages) {
  const auto x = Io(any).x_row(row) + static_cast<std::size_t>(slice.begin);
  return MomentsOfBlocks<kCentred, false>(x, slice.count(), eps, pages);
}

// Writes it.
template <bool kCentred, class Io>
void FinishNorm(const AnyRows& any, std::int64_t row, const Slice& slice, double mean, double scale,
                bool stream) {
  const Io io(any);
  const auto begin = static_cast<std::size_t>(slice.begin);
  const auto x = io.x_row(row) + begin;
  const auto* gamma = io.gamma + begin;
  const auto* beta = kCentred ? io.beta + begin : nullptr;
  auto* y = io.y_row(row) + begin;
  const auto result = ResultOf<kCentred>(x, gamma, beta, Mapping(mean, scale));
  if (!float_writes(mean, scale)) {
    WriteInDouble(x, gamma, beta, y, slice.count(), mean, scale);
  } else if (kStreams && stream) {
    WriteElements<kStreams>(Tag(), y, slice.count(), result);
    hwy::FlushStream();
  } else {
    WriteElements<false>(Tag(), y, slice.count(), result);
  }
}

// Gamma or beta as float32.
template <class T>
void WidenVector(const void* from, float* to, std::size_t n) {
  Widen(static_cast<const T*>(from), to, n);
}
template <>
inline void WidenVector<float>(const void* from, float* to, std::size_t n) {
  std::copy_n(static_cast<const float*>(from), n, to);
}

// The loops over an element type, for a target.
template <bool kCentred, class Io>
constexpr NormLoops NormLoopsOf() {
  return {NormRows<kCentred, Io>, PartOfNorm<kCentred, Io>, FinishNorm<kCentred, Io>,
          WidenVector<typename Io::Element>};
}
template <bool kCentred>
NormLoops NormLoopsFor(DType type, bool summed) {
  if (type == &float16) {
    return summed ? NormLoopsOf<kCentred, RowsOf<Float16, true>>()
                  : NormLoopsOf<kCentred, RowsOf<Float16, false>>();
  }
  if (type == &bfloat16) {
    return summed ? NormLoopsOf<kCentred, RowsOf<BFloat16, true>>()
                  : NormLoopsOf<kCentred, RowsOf<BFloat16, false>>();
  }
  return summed ? NormLoopsOf<kCentred, RowsOf<float, true>>()
                : NormLoopsOf<kCentred, RowsOf<float, false>>();
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
