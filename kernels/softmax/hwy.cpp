// Softmax with Highway: memory is visited once where a row fits the cache (maximum, exp and sum,
// scale, all on the cached row), twice where it does not (pieces merged online, then exp again).
// Short rows stay in registers, several to a vector. See softmax.hpp for the maths and the sources.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/row_plan.hpp"
#include "kernels/softmax/softmax.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/softmax/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::softmax {
namespace HWY_NAMESPACE {

// The greatest lane; at least -FLT_MAX and never NaN.
HWY_INLINE float NumberOf(Vector max) {
  const float most = hc::MaxLanes(Tag(), max);
  return most > kLowest ? most : kLowest;
}

// The greatest element, as above; may drop a NaN. `policy` as in prefetch.hpp.
template <class Policy = common::NoPrefetch>
HWY_INLINE float MaxOf(const float* x, std::size_t n, Policy policy = {}) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  Vector m0 = hn::Set(d, kLowest);
  Vector m1 = m0, m2 = m0, m3 = m0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (std::size_t at = i; at < i + 4 * lanes; at += lanes) policy(x + at);
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
    m2 = hn::Max(m2, hn::LoadU(d, x + i + 2 * lanes));
    m3 = hn::Max(m3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (std::size_t at = i; at < n; at += lanes) policy(x + at);
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(m0, hn::LoadU(d, x + i));
  if (i < n) m0 = hn::Max(m0, hc::LoadRow(d, x + i, hc::Part{n - i}, hn::Set(d, kLowest)));
  return NumberOf(hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
}

// Adds exp(x - max) of n elements to `sum`; kKeep: the terms themselves to `terms`. What else is
// done with each vector says meanwhile(i, fill), what after every eight
// after_eight(elements so far).
template <bool kKeep, class Meanwhile, class AfterEight>
HWY_INLINE void AddExp(hc::LongSum<Tag>& sum, const float* x, std::size_t n, float max,
                       float* terms, Meanwhile meanwhile, AfterEight after_eight) {
  const Tag d;
  const Vector shift = hn::Set(d, max);
  const auto term_at = [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    meanwhile(i, fill);
    const Vector part = hc::LoadRow(d, x + i, fill, hn::Set(d, -kInfinity));
    const Vector term = hc::ExpNonPositive(d, hn::Sub(part, shift));
    if constexpr (kKeep) hc::StoreRow(term, d, terms + i, fill);
    return term;
  };
  hc::SumRow(d, sum, n, term_at, after_eight);
}
template <bool kKeep, class Meanwhile>
HWY_INLINE void AddExp(hc::LongSum<Tag>& sum, const float* x, std::size_t n, float max,
                       float* terms, Meanwhile meanwhile) {
  AddExp<kKeep>(sum, x, n, max, terms, meanwhile, [](std::size_t) ROOFLANE_LAMBDA {});
}

// Maximum and sum over elements that stay in L2, and the terms exp(x - max) to `terms` unless it is
// null.
Partial TermsOf(const float* x, std::size_t n, float* terms, bool pages) {
  Partial whole;
  whole.max = pages ? MaxOf(x, n, common::PrefetchPages{common::last_of(x, n)}) : MaxOf(x, n);
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
template <class Policy>
HWY_INLINE Partial PartialOfPieces(const float* x, std::size_t n, std::size_t piece,
                                   Policy policy) {
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  Partial whole;
  hc::LongSum<Tag> sum(d);
  float max = MaxOf(x, std::min(piece, n));
  for (std::size_t at = 0; at < n; at += piece) {
    if (max > whole.max) {
      whole = merge(whole, {whole.max, sum.Total(d)});
      whole = merge(whole, {max, 0});
      sum = hc::LongSum<Tag>(d);
    }
    const float* here = x + at;
    const Vector shift = hn::Set(d, whole.max);
    if (at + 2 * piece <= n) {
      Vector next = hn::Set(d, kLowest);
      hc::SumRow(d, sum, piece, [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        policy(here + piece + i);
        next = hn::Max(next, hc::LoadRow(d, here + piece + i, fill, lowest));
        return hc::ExpNonPositive(d, hn::Sub(hc::LoadRow(d, here + i, fill, lowest), shift));
      });
      max = NumberOf(next);
    } else {
      const std::size_t count = std::min(piece, n - at);
      hc::SumRow(d, sum, count, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        return hc::ExpNonPositive(d, hn::Sub(hc::LoadRow(d, here + i, fill, lowest), shift));
      });
      if (at + count < n) max = MaxOf(here + count, std::min(piece, n - at - count));
    }
  }
  return merge(whole, {whole.max, sum.Total(d)});
}
Partial PartialOf(const float* x, std::size_t n, bool pages) {
  constexpr std::size_t piece = 2048;  // three of them are half of a 48 KiB L1
  const float* last = common::last_of(x, n);
  if (pages) return PartialOfPieces(x, n, piece, common::PrefetchPages{last});
  return PartialOfPieces(x, n, piece, common::PrefetchIntoL1{piece, last});
}

// y = exp(x - max) · scale. `policy` as in prefetch.hpp.
template <bool kStream, class Policy = common::NoPrefetch>
HWY_INLINE void Finish(const float* x, float* y, std::size_t n, float max, float scale,
                       Policy policy = {}) {
  const Tag d;
  const Vector shift = hn::Set(d, max);
  const Vector factor = hn::Set(d, scale);
  hc::WriteRow<kStream>(d, y, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    policy(x + i);
    const Vector part = hn::Sub(hc::LoadRow(d, x + i, fill, shift), shift);
    return hn::Mul(hc::ExpNonPositive(d, part), factor);
  });
}

// y = y · scale.
void Scale(float* y, std::size_t n, float scale) {
  const Tag d;
  const Vector factor = hn::Set(d, scale);
  hc::WriteRow<false>(d, y, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    return hn::Mul(hc::LoadRow(d, y + i, fill, factor), factor);
  });
}

void FinishSlice(const float* x, float* y, std::size_t n, float max, float scale, bool stream) {
  if (stream) {
    Finish<true>(x, y, n, max, scale);
    hwy::FlushStream();
  } else {
    Finish<false>(x, y, n, max, scale);
  }
}

// Rows that stay in L2, from `begin` to `end`. While the exps of
// a row are computed, which leaves loads and stores idle, the row before it is scaled and the
// maximum of the row after it taken, vector by vector: nothing waits for a reduction across lanes,
// and the next row is prefetched as well. (One row after the other, which leaves half as much in
// L1, lost 3 to 34 % on a Zen 5 at every length from 1000 to 16384; the maximum taken piece by
// piece with the exps, which spares a read of L2, lost 20 % at 2048 and gained 5 to 13 % beyond
// 65536.)
void CachedRows(const common::RowOperands& io, std::int64_t begin, std::int64_t end,
                std::size_t n) {
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  float max = MaxOf(io.x + begin * io.x_stride, n);
  float* before = nullptr;
  float scale = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    float* y = io.y + row * io.y_stride;
    const float* after = row + 1 < end ? x + io.x_stride : x;
    const Vector shift = hn::Set(d, max);
    Vector next_max = hn::Set(d, kLowest);
    hc::LongSum<Tag> sum(d);
    const auto term_at = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      next_max = hn::Max(next_max, hc::LoadRow(d, after + i, fill, lowest));
      const Vector part = hc::LoadRow(d, x + i, fill, lowest);
      const Vector term = hc::ExpNonPositive(d, hn::Sub(part, shift));
      hc::StoreRow(term, d, y + i, fill);
      return term;
    };
    if (before == nullptr) {
      hc::SumRow(d, sum, n, term_at);
    } else {
      const Vector factor = hn::Set(d, scale);
      hc::SumRow(d, sum, n, [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
        hc::StoreRow(hn::Mul(hc::LoadRow(d, before + i, fill, factor), factor), d, before + i,
                     fill);
        return term_at(i, fill);
      });
    }
    max = NumberOf(next_max);
    before = y;
    scale = static_cast<float>(1 / sum.Total(d));
  }
  Scale(before, n, scale);
}

// A row whose terms are known; none while y is null.
struct Unscaled {
  const float* terms = nullptr;
  float* y = nullptr;
  float scale = 0;
};

// y = terms · scale past the caches, interleaved with other work.
HWY_INLINE auto Scaled(const Unscaled& row, std::size_t n, hc::StoreCarry<Tag>& carry) {
  const Tag d;
  const float* terms = row.terms;
  const Vector factor = hn::Set(d, row.scale);
  return hc::InterleavedStream(d, row.y, row.y == nullptr ? 0 : n, carry,
                               [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
                                 return hn::Mul(hc::LoadRow(d, terms + i, fill, factor), factor);
                               });
}

// Rows beyond the caches of which four stay in L2, from `begin` to `end`. In steps, while the
// exps of a row are computed the row before it is scaled and written and one to come is
// prefetched: otherwise memory rests while exp is computed, and the other way round. `scratch`
// holds the terms of two rows, so that y is written once only.
void StreamedRows(const common::RowOperands& io, std::int64_t begin, std::int64_t end,
                  std::size_t n, float* scratch, common::PrefetchIntoL1 policy) {
  const Tag d;
  Unscaled unscaled;
  hc::StoreCarry<Tag> carry(d);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    float* terms = common::scratch_row(scratch + (row % 2) * common::scratch_stride(n), x);
    const float max = MaxOf(x, n);
    auto before = Scaled(unscaled, n, carry);
    hc::LongSum<Tag> sum(d);
    for (std::size_t i = 0; i < n; i += common::row_step) {
      const std::size_t count = std::min(common::row_step, n - i);
      AddExp<true>(sum, x + i, count, max, terms + i,
                   [=](std::size_t at, auto) ROOFLANE_LAMBDA { policy(x + i + at); });
      before.UpTo(i + count);
    }
    unscaled = {terms, io.y + row * io.y_stride, static_cast<float>(1 / sum.Total(d))};
  }
  Scaled(unscaled, n, carry).UpTo(n);
  carry.Close(d);
  hwy::FlushStream();
}

// The same where lines come into L2: the maximum of the next row is taken meanwhile, and a step is
// as short as a sum's group of vectors, so that each line that is asked for meets one that is
// written and an exp (from several pages, Sapphire Rapids, rows of 1000: 11.8 -> 14.4 GB/s, of 512
// 14.9 -> 19.6).
template <class Policy>
void StreamedRows(const common::RowOperands& io, std::int64_t begin, std::int64_t end,
                  std::size_t n, float* scratch, Policy policy) {
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  Unscaled unscaled;
  hc::StoreCarry<Tag> carry(d);
  float max = MaxOf(io.x + begin * io.x_stride, n, policy);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    float* terms = common::scratch_row(scratch + (row % 2) * common::scratch_stride(n), x);
    const float* after = row + 1 < end ? x + io.x_stride : x;
    auto before = Scaled(unscaled, n, carry);
    Vector next = hn::Set(d, kLowest);
    hc::LongSum<Tag> sum(d);
    AddExp<true>(
        sum, x, n, max, terms,
        [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
          policy(after + i);
          next = hn::Max(next, hc::LoadRow(d, after + i, fill, lowest));
        },
        [&](std::size_t summed) ROOFLANE_LAMBDA { before.EightUpTo(summed); });
    before.UpTo(n);
    max = NumberOf(next);
    unscaled = {terms, io.y + row * io.y_stride, static_cast<float>(1 / sum.Total(d))};
  }
  Scaled(unscaled, n, carry).UpTo(n);
  carry.Close(d);
  hwy::FlushStream();
}

void StreamedRows(const common::RowOperands& io, std::int64_t begin, std::int64_t end,
                  std::size_t n, float* scratch, common::Prefetch prefetch) {
  const float* last = common::last_of_rows(io, end, n);
  const std::int64_t distance = common::prefetch_distance(n, io.x_stride);
  switch (prefetch) {
    case common::Prefetch::pages:
      return StreamedRows(io, begin, end, n, scratch, common::PrefetchPages{last});
    case common::Prefetch::into_l2:
      return StreamedRows(io, begin, end, n, scratch, common::PrefetchIntoL2{distance, last});
    case common::Prefetch::into_l1:
      // (A Zen 5: 5 to 30 % faster than one row ahead with 512 to 4096 elements, with 200 5 %
      // slower.)
      return StreamedRows(
          io, begin, end, n, scratch,
          common::PrefetchIntoL1{n < common::row_step ? io.x_stride : distance, last});
  }
}

// Rows that stay in L2, from `begin` to `end`, past the caches, summed as CachedRows does, so that
// y has the same bits in place, where it is not streamed.
void ResidentRows(const common::RowOperands& io, std::int64_t begin, std::int64_t end,
                  std::size_t n) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    const Partial partial = TermsOf(x, n, nullptr, false);
    Finish<true>(x, io.y + row * io.y_stride, n, partial.max, static_cast<float>(1 / partial.sum));
  }
  hwy::FlushStream();
}

// The same where lines come from several pages: the maximum of the next row is taken while the exps
// of a row are summed. (Sapphire Rapids, rows of 128256: 1.3 to 1.4 times as fast, of 260000, two
// of which take all of L2, 1.15.)
void ResidentRows(const common::RowOperands& io, std::int64_t begin, std::int64_t end,
                  std::size_t n, common::PrefetchPages policy) {
  const Tag d;
  const Vector lowest = hn::Set(d, -kInfinity);
  float max = MaxOf(io.x + begin * io.x_stride, n, policy);
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    const float* after = row + 1 < end ? x + io.x_stride : x;
    Vector next = hn::Set(d, kLowest);
    hc::LongSum<Tag> sum(d);
    AddExp<false>(sum, x, n, max, nullptr, [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
      policy(after + i);
      next = hn::Max(next, hc::LoadRow(d, after + i, fill, lowest));
    });
    Finish<true>(x, io.y + row * io.y_stride, n, max, static_cast<float>(1 / sum.Total(d)));
    max = NumberOf(next);
  }
  hwy::FlushStream();
}

// Rows of any length from `begin` to `end`, each visited twice.
template <bool kStream>
void LongRows(const common::RowOperands& io, std::int64_t begin, std::int64_t end, std::size_t n,
              bool pages) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = io.x + row * io.x_stride;
    float* y = io.y + row * io.y_stride;
    const Partial partial = PartialOf(x, n, pages);
    const auto scale = static_cast<float>(1 / partial.sum);
    pages
        ? Finish<kStream>(x, y, n, partial.max, scale, common::PrefetchPages{common::last_of(x, n)})
        : Finish<kStream>(x, y, n, partial.max, scale);
  }
  if constexpr (kStream) hwy::FlushStream();
}

// `stream`: past the caches, and by way of `scratch` where there is some. `resident`: a row stays
// in L2.
void Rows(const common::RowOperands& io, std::int64_t begin, std::int64_t end, std::int64_t cols,
          float* scratch, bool stream, common::Prefetch prefetch, bool resident) {
  const auto n = static_cast<std::size_t>(cols);
  const bool pages = prefetch == common::Prefetch::pages;
  if (n <= 4 * hn::Lanes(Tag())) {
    return stream ? StreamedShortRows(io, begin, end, n, pages) : ShortRows(io, begin, end, n);
  }
  if (!resident) {
    stream ? LongRows<true>(io, begin, end, n, pages) : LongRows<false>(io, begin, end, n, pages);
  } else if (!stream) {
    CachedRows(io, begin, end, n);
  } else if (scratch != nullptr) {
    StreamedRows(io, begin, end, n, scratch, prefetch);
  } else if (pages) {
    ResidentRows(io, begin, end, n, common::PrefetchPages{common::last_of_rows(io, end, n)});
  } else {
    ResidentRows(io, begin, end, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::softmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::softmax {
namespace {

HWY_EXPORT(Rows);
HWY_EXPORT(PartialOf);
HWY_EXPORT(TermsOf);
HWY_EXPORT(Scale);
HWY_EXPORT(FinishSlice);

class Op {
 public:
  using Part = Partial;
  // (A Zen 4, rows of 2048 and 4096: 1.75 and 1.3 times as fast into L2 as into L1, from pages 1.6
  // and 1.7 times.)
  static constexpr common::RowWork work = {
      .vector_ops = 12.8, .row_ops = 45, .short_ops = 2.4, .long_rows = common::Prefetch::pages};

  explicit Op(const common::RowSettings& settings)
      : cols_(settings.problem.size("cols")),
        // A part that stays in L2 keeps its terms in y, which spares it half of the exps.
        part_stays_(common::resident((cols_ + settings.threads - 1) / settings.threads)),
        rows_(ROOFLANE_HWY_FUNCTION(Rows, settings.target)),
        partial_of_(ROOFLANE_HWY_FUNCTION(PartialOf, settings.target)),
        terms_of_(ROOFLANE_HWY_FUNCTION(TermsOf, settings.target)),
        scale_(ROOFLANE_HWY_FUNCTION(Scale, settings.target)),
        finish_slice_(ROOFLANE_HWY_FUNCTION(FinishSlice, settings.target)) {
    if (settings.split || settings.tuning.get("stream", 0) == 0) return;
    // The terms of two rows are kept, beside two of x, in cache.
    const bool by_scratch = cols_ <= common::row_block ||
                            (common::prefetch_asked(settings.tuning) != common::Prefetch::into_l1 &&
                             common::keeps_four_rows(cols_));
    if (!by_scratch) return;
    scratch_stride_ =
        static_cast<std::int64_t>(2 * common::scratch_stride(static_cast<std::size_t>(cols_)));
    scratch_ = Buffer(static_cast<std::size_t>(settings.threads * scratch_stride_) * sizeof(float));
  }

  static bool is_direct(const Problem& problem) {
    return problem.dtype("type") == &float32 && !option_refusal(problem);
  }
  void bind(const Operands& operands) { io_ = common::RowOperands(operands); }
  const common::RowOperands& io() const { return io_; }
  std::size_t workspace_bytes() const { return scratch_.bytes(); }
  std::int64_t group() const { return 1; }

  void rows(common::RowRange rows, int thread, const common::RowAccess& access) {
    // Long rows go by way of scratch only where x is not prefetched into L1; there it was not
    // measured.
    const bool uses_scratch =
        cols_ <= common::row_block || access.prefetch != common::Prefetch::into_l1;
    float* scratch = uses_scratch ? scratch_.f32() : nullptr;
    rows_(io_, rows.begin, rows.end, cols_,
          scratch == nullptr ? scratch : scratch + thread * scratch_stride_, access.stream,
          access.prefetch, common::resident(cols_));
  }
  Partial part(std::int64_t row, const common::Slice& slice,
               const common::RowAccess& access) const {
    const float* x = io_.x + row * io_.x_stride + slice.begin;
    float* y = io_.y + row * io_.y_stride + slice.begin;
    const bool pages = access.prefetch == common::Prefetch::pages;
    if (!part_stays_) return partial_of_(x, slice.count(), pages);
    return terms_of_(x, slice.count(), access.stream ? nullptr : y, pages);
  }
  static Partial merge(const Partial& a, const Partial& b) { return softmax::merge(a, b); }
  void finish(std::int64_t row, const common::Slice& slice, const Partial& part,
              const Partial& whole, const common::RowAccess& access) const {
    float* y = io_.y + row * io_.y_stride + slice.begin;
    // What the part was summed with: its own maximum, or none but the row's.
    const float max = part_stays_ ? part.max : whole.max;
    const double apart = static_cast<double>(max) - static_cast<double>(whole.max);
    const auto scale = static_cast<float>(std::exp(apart) / whole.sum);
    if (part_stays_ && !access.stream) {
      scale_(y, slice.count(), scale);
    } else {
      finish_slice_(io_.x + row * io_.x_stride + slice.begin, y, slice.count(), max, scale,
                    access.stream);
    }
  }

 private:
  std::int64_t cols_;
  bool part_stays_;
  decltype(&HWY_STATIC_DISPATCH(Rows)) rows_;
  decltype(&HWY_STATIC_DISPATCH(PartialOf)) partial_of_;
  decltype(&HWY_STATIC_DISPATCH(TermsOf)) terms_of_;
  decltype(&HWY_STATIC_DISPATCH(Scale)) scale_;
  decltype(&HWY_STATIC_DISPATCH(FinishSlice)) finish_slice_;
  std::int64_t scratch_stride_ = 0;  // elements of each thread
  Buffer scratch_;
  common::RowOperands io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  return common::plan_of_rows<Op>(problem, complete_tuning(hwy, problem, env, tuning), env);
}

}  // namespace

const Variant hwy = {
    .name = "hwy",
    .kernel = &kernel,
    .backend = &highway::backend,
    .threads = Threads::many,
    .tunables = common::row_tunables,
    .unsupported = nullptr,
    .tunings = common::tunings_of_rows<Op>,
    .plan = plan,
    .tuning_defect = common::threads_defect,
    .predicted_seconds = common::predicted_seconds_of_rows<Op>,
    .ladder = ladder,
    .dtypes = float_types,
};

}  // namespace rooflane::softmax
#endif  // HWY_ONCE
