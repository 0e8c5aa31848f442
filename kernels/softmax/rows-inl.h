// Softmax of rows with Highway, for every element type: which rows are worked on together, in cache
// and beyond it. Short rows: short-inl.h. See softmax.hpp for the maths and the sources.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_SOFTMAX_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_SOFTMAX_ROWS_INL_H_
#undef ROOFLANE_KERNELS_SOFTMAX_ROWS_INL_H_
#else
#define ROOFLANE_KERNELS_SOFTMAX_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/prefetch.hpp"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/softmax/hwy_loops.hpp"
#include "kernels/softmax/short-inl.h"
#include "kernels/softmax/softmax.hpp"

HWY_BEFORE_NAMESPACE();
namespace rooflane::softmax {
namespace HWY_NAMESPACE {

// The greatest lane; at least -FLT_MAX and never NaN.
HWY_INLINE float NumberOf(Vector max) {
  const float most = hc::MaxLanes(Tag(), max);
  return most > kLowest ? most : kLowest;
}

// The greatest element, as above; may drop a NaN. `policy` as in prefetch.hpp.
template <class Row, class Policy = common::NoPrefetch>
HWY_INLINE float MaxOf(Row x, std::size_t n, Policy policy = {}) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const hc::Whole whole;
  Vector m0 = hn::Set(d, kLowest);
  Vector m1 = m0, m2 = m0, m3 = m0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    hc::AskForTwo(policy, x + i, lanes);
    hc::AskForTwo(policy, x + i + 2 * lanes, lanes);
    m0 = hn::Max(m0, hc::LoadElements(d, x + i, whole));
    m1 = hn::Max(m1, hc::LoadElements(d, x + i + lanes, whole));
    m2 = hn::Max(m2, hc::LoadElements(d, x + i + 2 * lanes, whole));
    m3 = hn::Max(m3, hc::LoadElements(d, x + i + 3 * lanes, whole));
  }
  for (std::size_t at = i; at < n; at += lanes) policy(x + at);
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(m0, hc::LoadElements(d, x + i, whole));
  if (i < n) m0 = hn::Max(m0, hc::LoadElements(d, x + i, hc::Part{n - i}, hn::Set(d, kLowest)));
  return NumberOf(hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
}

// The terms exp(x - shift) of a row, which SumRow adds; kKeep: written to `terms`. Before each
// vector meanwhile(i, fill) is called.
template <bool kKeep, class Row, class Meanwhile>
struct Terms {
  Row x;
  Vector shift;
  float* terms;
  Meanwhile& meanwhile;

  template <class Fill>
  HWY_INLINE Vector operator()(std::size_t i, Fill fill) const {
    const Tag d;
    meanwhile(i, fill);
    const Vector part = hc::LoadElements(d, x + i, fill, hn::Set(d, -kInfinity));
    const Vector term = hc::ExpNonPositive(d, hn::Sub(part, shift));
    if constexpr (kKeep) hc::StoreRow(term, d, terms + i, fill);
    return term;
  }
  // The sum of four vectors.
  HWY_INLINE Vector Four(std::size_t i) const { return Sum(i, std::make_index_sequence<4>()); }

 private:
  template <std::size_t... I>
  HWY_INLINE Vector Sum(std::size_t i, std::index_sequence<I...>) const {
    const Tag d;
    const std::size_t lanes = hn::Lanes(d);
    (meanwhile(i + I * lanes, hc::Whole()), ...);
    Vector v[] = {hn::Sub(hc::LoadElements(d, x + (i + I * lanes), hc::Whole()), shift)...};
    hc::ExpNonPositive(d, v);
    if constexpr (kKeep) (hn::StoreU(v[I], d, terms + i + I * lanes), ...);
    return hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]));
  }
};

// Adds exp(x - max) of n elements to `sum`; kKeep: the terms themselves to `terms`. What else is
// done with each vector says meanwhile(i, fill), what after every eight
// after_eight(elements so far).
template <bool kKeep, class Row, class Meanwhile, class AfterEight>
HWY_INLINE void AddExp(hc::LongSum<Tag>& sum, Row x, std::size_t n, float max, float* terms,
                       Meanwhile meanwhile, AfterEight after_eight) {
  const Tag d;
  hc::SumRow(d, sum, n, Terms<kKeep, Row, Meanwhile>{x, hn::Set(d, max), terms, meanwhile},
             after_eight);
}
template <bool kKeep, class Row, class Meanwhile>
HWY_INLINE void AddExp(hc::LongSum<Tag>& sum, Row x, std::size_t n, float max, float* terms,
                       Meanwhile meanwhile) {
  AddExp<kKeep>(sum, x, n, max, terms, meanwhile, [](std::size_t) ROOFLANE_LAMBDA {});
}

// Whether the sum of a row's terms says that S·x + mask left float32, which x as it is never does:
// the row is then looked at in double. True also of a row that is NaN by right.
template <class Io>
HWY_INLINE bool Lost(double sum) {
  return Io::is_summed && !(sum > 0 && sum <= std::numeric_limits<double>::max());
}

// Maximum and sum over elements that stay in L2, and the terms exp(x - max) to `terms` unless it is
// null.
template <class Row>
Partial TermsOf(Row x, std::size_t n, float* terms, bool pages) {
  Partial whole;
  whole.max = hc::kStreams && pages ? MaxOf(x, n, common::PrefetchPages{common::last_of(x, n)})
                                    : MaxOf(x, n);
  hc::LongSum<Tag> sum((Tag()));
  const auto nothing = [](std::size_t, auto) ROOFLANE_LAMBDA {};
  if (terms != nullptr) {
    AddExp<true>(sum, x, n, whole.max, terms, nothing);
  } else {
    AddExp<false>(sum, x, n, whole.max, terms, nothing);
  }
  whole.sum = sum.Total(Tag());
  return whole;
}

// Maximum and sum over any number of elements in one visit of memory. While the exps of a piece are
// computed, relative to the maximum so far, the next piece is read for its own and what `policy`
// says prefetched; only a piece that raises the maximum costs a correction of the sum.
template <class Row, class Policy>
HWY_INLINE Partial PartialOfPieces(Row x, std::size_t n, std::size_t piece, Policy policy) {
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  Partial whole;
  hc::LongSum<Tag> sum(d);
  float max = MaxOf(x, std::min(piece, n));
  for (std::size_t at = 0; at < n; at += piece) {
    if (max > whole.max) {
      whole = merge(whole, {whole.max, sum.Total(d)});
      whole = {max, whole.sum * std::exp(whole.max - static_cast<double>(max))};
      sum = hc::LongSum<Tag>(d);
    }
    const Row here = x + at;
    const Vector shift = hn::Set(d, static_cast<float>(whole.max));
    if (at + 2 * piece <= n) {
      Vector next = hn::Set(d, kLowest);
      hc::SumRow(d, sum, piece, [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        policy(here + piece + i);
        next = hn::Max(next, hc::LoadElements(d, here + piece + i, fill, lowest));
        return hc::ExpNonPositive(d, hn::Sub(hc::LoadElements(d, here + i, fill, lowest), shift));
      });
      max = NumberOf(next);
    } else {
      const std::size_t count = std::min(piece, n - at);
      hc::SumRow(d, sum, count, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        return hc::ExpNonPositive(d, hn::Sub(hc::LoadElements(d, here + i, fill, lowest), shift));
      });
      if (at + count < n) max = MaxOf(here + count, std::min(piece, n - at - count));
    }
  }
  return merge(whole, {whole.max, sum.Total(d)});
}
template <class T, class Row>
Partial PartialOf(Row x, std::size_t n, bool pages) {
  constexpr std::size_t piece = 2048;  // three of them are half of a 48 KiB L1
  const void* last = common::last_of(x, n);
  if constexpr (hc::kStreams) {
    if (pages) return PartialOfPieces(x, n, piece, common::PrefetchPages{last});
  }
  return PartialOfPieces(x, n, piece, common::PrefetchIntoL1{piece * sizeof(T), last});
}

// y = exp(x - max) · scale. `policy` as in prefetch.hpp.
template <bool kStream, class Row, class T, class Policy = common::NoPrefetch>
HWY_INLINE void Finish(Row x, T* y, std::size_t n, float max, float scale, Policy policy = {}) {
  const Tag d;
  const Vector shift = hn::Set(d, max);
  const Vector factor = hn::Set(d, scale);
  hc::WriteElements<kStream>(d, y, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    policy(x + i);
    const Vector part = hn::Sub(hc::LoadElements(d, x + i, fill, shift), shift);
    return hn::Mul(hc::ExpNonPositive(d, part), factor);
  });
}

// y = terms · scale; they may be the same.
template <class T>
void Scale(const float* terms, T* y, std::size_t n, float scale) {
  const Tag d;
  const Vector factor = hn::Set(d, scale);
  hc::WriteElements<false>(d, y, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    return hn::Mul(hc::LoadRow(d, terms + i, fill), factor);
  });
}

// A row with its terms computed, to be scaled; no row while y is null.
template <class T>
struct Unscaled {
  const float* terms = nullptr;
  T* y = nullptr;
  float scale = 0;
};

// Where the terms of a row are kept until their sum is known: in y where that is float32, unless
// the row might have to be read once more, else in one of two rows of `scratch`.
template <class Io>
HWY_INLINE float* TermsOfRow(const Io& io, std::int64_t row, std::size_t n, float* scratch) {
  if constexpr (Io::is_plain) {
    return io.y_row(row);
  } else {
    return scratch + row % 2 * common::scratch_stride(n);
  }
}

// Rows that stay in L2, from `begin` to `end`, or up to one that is Lost; returns how far. While
// the exps of a row are computed, which leaves loads and stores idle, the row before it is scaled
// and the maximum of the row after it taken, vector by vector: nothing waits for a reduction across
// lanes, and the next row is prefetched as well. (One row after the other, which leaves half as
// much in L1, lost 3 to 34 % on a Zen 5 at every length from 1000 to 16384; the maximum taken piece
// by piece with the exps, which spares a read of L2, lost 20 % at 2048 and gained 5 to 13 % beyond
// 65536.)
template <class Io>
std::int64_t CachedRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                        float* scratch) {
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  float max = MaxOf(io.x_row(begin), n);
  Unscaled<typename Io::Element> before;
  std::int64_t row = begin;
  for (; row < end; ++row) {
    const auto x = io.x_row(row);
    float* terms = TermsOfRow(io, row, n, scratch);
    const auto after = io.x_row(row + 1 < end ? row + 1 : row);
    Vector next_max = hn::Set(d, kLowest);
    hc::LongSum<Tag> sum(d);
    const auto look_on = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      next_max = hn::Max(next_max, hc::LoadElements(d, after + i, fill, lowest));
    };
    const std::size_t to_scale = before.y == nullptr ? 0 : n;
    const Vector factor = hn::Set(d, before.scale);
    const auto scaled = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      return hn::Mul(hc::LoadRow(d, before.terms + i, fill), factor);
    };
    if constexpr (!Io::is_plain) {
      // Eight vectors at a time, because those of shorter elements are stored by twos.
      std::size_t done = 0;
      AddExp<true>(sum, x, n, max, terms, look_on, [&](std::size_t summed) ROOFLANE_LAMBDA {
        if (summed <= to_scale) hc::StoreVectors<false, 8>(d, before.y, done, scaled);
        done = summed;
      });
      if (done < to_scale) {
        hc::WriteElements<false>(d, before.y + done, n - done,
                                 [&](std::size_t i, auto fill)
                                     ROOFLANE_LAMBDA { return scaled(done + i, fill); });
      }
    } else if (to_scale == 0) {
      AddExp<true>(sum, x, n, max, terms, look_on);
    } else {
      AddExp<true>(sum, x, n, max, terms, [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        hc::StoreElements(scaled(i, fill), d, before.y + i, fill);
        look_on(i, fill);
      });
    }
    before.y = nullptr;
    const double total = sum.Total(d);
    if (HWY_UNLIKELY(Lost<Io>(total))) break;
    max = NumberOf(next_max);
    before = {terms, io.y_row(row), static_cast<float>(1 / total)};
  }
  if (before.y != nullptr) Scale(before.terms, before.y, n, before.scale);
  return row;
}

// y = terms · scale past the caches, interleaved with other work.
template <class T>
HWY_INLINE auto Scaled(const Unscaled<T>& row, std::size_t n, hc::StoreCarry<Tag, T>& carry) {
  const Tag d;
  const float* terms = row.terms;
  const Vector factor = hn::Set(d, row.scale);
  return hc::InterleavedStream(
      d, row.y, row.y == nullptr ? 0 : n, carry,
      [=](std::size_t i, auto fill)
          ROOFLANE_LAMBDA { return hn::Mul(hc::LoadRow(d, terms + i, fill), factor); },
      std::false_type());
}

// Rows beyond the caches, from `begin` to `end` or up to one that is Lost, where L2 keeps four
// rows; returns how far it came. While the exps of a row are computed, the row before it is scaled
// and written and a later one is prefetched: otherwise memory idles while exp is computed, and the
// units idle while memory works. `scratch` contains the terms of two rows, so that y is written
// only once. With prefetch into L1 this happens in steps. With prefetch into L2 the maximum of the
// next row is taken meanwhile, and a step is as short as a sum's group of vectors, so that reads,
// writes and exps alternate line by line.
template <class Io, class Policy>
std::int64_t StreamedRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                          float* scratch, Policy policy) {
  constexpr bool in_steps = std::is_same_v<Policy, common::PrefetchIntoL1>;
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  Unscaled<typename Io::Element> unscaled;
  hc::StoreCarry<Tag, typename Io::Element> carry;
  float max = 0;
  if constexpr (!in_steps) max = MaxOf(io.x_row(begin), n, policy);
  std::int64_t row = begin;
  for (; row < end; ++row) {
    const auto x = io.x_row(row);
    float* terms = common::scratch_row(scratch + (row % 2) * common::scratch_stride(n),
                                       io.x + row * io.x_stride);
    hc::LongSum<Tag> sum(d);
    if constexpr (in_steps) {
      max = MaxOf(x, n);
      auto before = Scaled(unscaled, n, carry);
      before.Start();
      for (std::size_t i = 0; i < n; i += common::row_step) {
        const std::size_t count = std::min(common::row_step, n - i);
        AddExp<true>(sum, x + i, count, max, terms + i,
                     [=](std::size_t at, auto) ROOFLANE_LAMBDA { policy(x + i + at); });
        before.UpTo(i + count);
      }
    } else {
      const auto after = io.x_row(row + 1 < end ? row + 1 : row);
      auto before = Scaled(unscaled, n, carry);
      before.Start();
      Vector next = hn::Set(d, kLowest);
      AddExp<true>(
          sum, x, n, max, terms,
          [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
            policy(after + i);
            next = hn::Max(next, hc::LoadElements(d, after + i, fill, lowest));
          },
          [&](std::size_t summed) ROOFLANE_LAMBDA { before.EightUpTo(summed); });
      before.UpTo(n);
      max = NumberOf(next);
    }
    const double total = sum.Total(d);
    unscaled = {terms, io.y_row(row), static_cast<float>(1 / total)};
    if (HWY_UNLIKELY(Lost<Io>(total))) {
      unscaled.y = nullptr;
      break;
    }
  }
  Scaled(unscaled, n, carry).UpTo(n);
  carry.Close();
  hwy::FlushStream();
  return row;
}

template <class Io>
std::int64_t StreamedRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                          float* scratch, common::Prefetch prefetch) {
  const void* last = io.last_before(end, n);
  const std::int64_t distance = io.prefetch_distance(n);
  switch (prefetch) {
    case common::Prefetch::pages:
      return StreamedRows(io, begin, end, n, scratch, common::PrefetchPages{last});
    case common::Prefetch::into_l2:
      return StreamedRows(io, begin, end, n, scratch, common::PrefetchIntoL2{distance, last});
    default:
      // (A Zen 5: 5 to 30 % faster than one row ahead with 512 to 4096 elements, with 200 5 %
      // slower.)
      return StreamedRows(
          io, begin, end, n, scratch,
          common::PrefetchIntoL1{n < common::row_step ? io.x_bytes() : distance, last});
  }
}

// Rows that stay in L2, from `begin` to `end`, or up to one that is Lost, past the caches, summed
// as CachedRows does, so that y has the same bits in place, where it is not streamed. Returns how
// far.
template <class Io>
std::int64_t ResidentRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n) {
  std::int64_t row = begin;
  for (; row < end; ++row) {
    const auto x = io.x_row(row);
    const Partial partial = TermsOf(x, n, nullptr, false);
    if (HWY_UNLIKELY(Lost<Io>(partial.sum))) break;
    Finish<true>(x, io.y_row(row), n, static_cast<float>(partial.max),
                 static_cast<float>(1 / partial.sum));
  }
  hwy::FlushStream();
  return row;
}

// The same with prefetch from several pages: the maximum of the next row is taken while the exps of
// a row are summed.
template <class Io>
std::int64_t ResidentRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                          common::PrefetchPages policy) {
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  float max = MaxOf(io.x_row(begin), n, policy);
  std::int64_t row = begin;
  for (; row < end; ++row) {
    const auto x = io.x_row(row);
    const auto after = io.x_row(row + 1 < end ? row + 1 : row);
    Vector next = hn::Set(d, kLowest);
    hc::LongSum<Tag> sum(d);
    AddExp<false>(sum, x, n, max, nullptr, [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      policy(after + i);
      next = hn::Max(next, hc::LoadElements(d, after + i, fill, lowest));
    });
    const double total = sum.Total(d);
    if (HWY_UNLIKELY(Lost<Io>(total))) break;
    Finish<true>(x, io.y_row(row), n, max, static_cast<float>(1 / total));
    max = NumberOf(next);
  }
  hwy::FlushStream();
  return row;
}

// Rows of any length from `begin` to `end`, or up to one that is Lost, each visited twice. Returns
// how far.
template <bool kStream, class Io>
std::int64_t LongRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                      bool pages) {
  std::int64_t row = begin;
  for (; row < end; ++row) {
    const auto x = io.x_row(row);
    auto* y = io.y_row(row);
    const Partial partial = PartialOf<typename Io::Element>(x, n, pages);
    if (HWY_UNLIKELY(Lost<Io>(partial.sum))) break;
    const auto max = static_cast<float>(partial.max);
    const auto scale = static_cast<float>(1 / partial.sum);
    if (hc::kStreams && pages) {
      Finish<kStream>(x, y, n, max, scale, common::PrefetchPages{common::last_of(x, n)});
    } else {
      Finish<kStream>(x, y, n, max, scale);
    }
  }
  if constexpr (kStream) hwy::FlushStream();
  return row;
}

// Element i of S·x + mask in double.
template <class T>
double InDouble(const common::SummedRow<T>& row, std::size_t i) {
  const double scaled = static_cast<double>(row.factor) * static_cast<float>(row.x[row.at + i]);
  return row.added == nullptr ? scaled : scaled + static_cast<float>(row.added[row.at + i]);
}

// Maximum and sum of a row, or of a part, which is `wide` unless it is nothing but -inf.
template <class T>
HWY_NOINLINE Partial PartialInDouble(const common::SummedRow<T>& x, std::size_t n) {
  constexpr double lowest = std::numeric_limits<double>::lowest();
  double max = lowest;
  bool nan = false;
  for (std::size_t i = 0; i < n; ++i) {
    const double value = InDouble(x, i);
    nan |= std::isnan(value);
    max = std::max(max, value);
  }
  if (max == lowest && !nan) return {};
  Partial whole = {max, 0, true};
  for (std::size_t i = 0; i < n; ++i) whole.sum += std::exp(InDouble(x, i) - max);
  return whole;
}
template <class T>
HWY_NOINLINE void WriteInDouble(const common::SummedRow<T>& x, T* y, std::size_t n,
                                const Partial& whole) {
  for (std::size_t i = 0; i < n; ++i) {
    const double y_i = whole.sum > 0 ? std::exp(InDouble(x, i) - whole.max) / whole.sum
                                     : std::numeric_limits<double>::quiet_NaN();
    y[i] = T(static_cast<float>(y_i));
  }
}

template <class Io>
std::int64_t OrdinaryRows(const Io& io, std::int64_t begin, std::int64_t end, std::size_t n,
                          float* scratch, bool resident, const common::RowAccess& access) {
  const bool pages = access.prefetch == common::Prefetch::pages;
  if (n <= MostInRegisters()) return ShortRows(io, begin, end, n, access.stream, pages);
  if constexpr (hc::kStreams) {
    if (access.stream) {
      if (!resident) return LongRows<true>(io, begin, end, n, pages);
      if (scratch != nullptr) return StreamedRows(io, begin, end, n, scratch, access.prefetch);
      if (pages) {
        return ResidentRows(io, begin, end, n, common::PrefetchPages{io.last_before(end, n)});
      }
      return ResidentRows(io, begin, end, n);
    }
  }
  if (!resident) return LongRows<false>(io, begin, end, n, pages);
  return CachedRows(io, begin, end, n, scratch);
}

// access.stream: past the caches, and by way of `scratch` where there is some. `resident`: a row
// stays in L2.
template <class Io>
void Rows(const common::AnyRows& any, std::int64_t begin, std::int64_t end, std::int64_t cols,
          float* scratch, bool resident, const common::RowAccess& access) {
  const Io io(any);
  const auto n = static_cast<std::size_t>(cols);
  for (; begin < end; ++begin) {
    begin = OrdinaryRows(io, begin, end, n, scratch, resident, access);
    if constexpr (Io::is_summed) {
      if (begin == end) return;
      WriteInDouble(io.x_row(begin), io.y_row(begin), n, PartialInDouble(io.x_row(begin), n));
    }
  }
}

// Maximum and sum of a part of a row; `keeps`: the terms are written to y.
template <class Io>
Partial PartOf(const common::AnyRows& any, std::int64_t row, const common::Slice& slice, bool stays,
               bool keeps, bool pages) {
  const Io io(any);
  const auto begin = static_cast<std::size_t>(slice.begin);
  const auto x = io.x_row(row) + begin;
  Partial part;
  if (!stays) {
    part = PartialOf<typename Io::Element>(x, slice.count(), pages);
  } else {
    float* terms = nullptr;
    if constexpr (Io::is_plain) terms = keeps ? io.y_row(row) + begin : nullptr;
    part = TermsOf(x, slice.count(), terms, pages);
  }
  if constexpr (Io::is_summed) {
    if (Lost<Io>(part.sum)) return PartialInDouble(x, slice.count());
  }
  return part;
}

// Writes a part of a row. `part`: the reductions over this part; `whole`: those over the row.
template <class Io>
void FinishPart(const common::AnyRows& any, std::int64_t row, const common::Slice& slice,
                const Partial& part, const Partial& whole, bool kept, bool stream) {
  const Io io(any);
  const auto begin = static_cast<std::size_t>(slice.begin);
  const std::size_t n = slice.count();
  const auto x = io.x_row(row) + begin;
  auto* y = io.y_row(row) + begin;
  if constexpr (Io::is_summed) {
    if (whole.wide) return WriteInDouble(x, y, n, whole);
  }
  const auto scale = static_cast<float>(std::exp(part.max - whole.max) / whole.sum);
  if constexpr (Io::is_plain) {
    if (kept) return Scale(y, y, n, scale);
  }
  if (hc::kStreams && stream) {
    Finish<hc::kStreams>(x, y, n, static_cast<float>(part.max), scale);
    hwy::FlushStream();
  } else {
    Finish<false>(x, y, n, static_cast<float>(part.max), scale);
  }
}

template <class Io>
constexpr Loops LoopsOf() {
  return {Rows<Io>, PartOf<Io>, FinishPart<Io>};
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::softmax
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
