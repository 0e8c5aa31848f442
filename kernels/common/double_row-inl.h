// One row of LayerNorm or RMSNorm in double precision, for the rare rows where squares, differences
// or 1/sigma leave the range of float32. The loops over ordinary rows find such a row by its sums
// and call this before they write it. A sum with a residual is exact here.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_DOUBLE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_DOUBLE_ROW_INL_H_
#undef ROOFLANE_KERNELS_COMMON_DOUBLE_ROW_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_DOUBLE_ROW_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

using WideTag = hn::ScalableTag<double>;
using WideVector = hn::Vec<WideTag>;

// The elements at p in double, 0 in lanes beyond a part.
template <class T, class Fill>
HWY_INLINE WideVector LoadWide(const T* p, Fill fill) {
  const hn::Rebind<float, WideTag> narrow;
  return hn::PromoteTo(WideTag(), LoadElements(narrow, p, fill));
}
template <class T, class Fill>
HWY_INLINE WideVector LoadWide(const SummedRow<T>& row, Fill fill) {
  const WideVector factor = hn::Set(WideTag(), static_cast<double>(row.factor));
  const WideVector scaled = hn::Mul(factor, LoadWide(row.x + row.at, fill));
  if (row.added == nullptr) return scaled;
  return hn::Add(scaled, LoadWide(row.added + row.at, fill));
}

// Σ term(x, fill) of n elements; lanes beyond a part must be 0.
template <class Row, class Term>
HWY_INLINE double WideSum(Row x, std::size_t n, Term term) {
  const WideTag d;
  const std::size_t lanes = hn::Lanes(d);
  WideVector even = hn::Zero(d), odd = even;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, term(LoadWide(x + i, Whole()), Whole()));
    odd = hn::Add(odd, term(LoadWide(x + i + lanes, Whole()), Whole()));
  }
  for (; i < n; i += lanes) {
    const Part part{n - i < lanes ? n - i : lanes};
    even = hn::Add(even, term(LoadWide(x + i, part), part));
  }
  return SumLanes(d, hn::Add(even, odd));
}

template <class Row>
double SumInDouble(Row x, std::size_t n) {
  return WideSum(x, n, [](WideVector v, auto) ROOFLANE_LAMBDA { return v; });
}

// Σ(x - centre)².
template <class Row>
double SquaresInDouble(Row x, std::size_t n, double centre) {
  return WideSum(x, n, [=](WideVector v, auto fill) ROOFLANE_LAMBDA {
    const WideVector distance = Filled(WideTag(), hn::Sub(v, hn::Set(WideTag(), centre)), fill);
    return hn::Mul(distance, distance);
  });
}

// y = (x - mean) · scale · gamma + beta, rounded to float32 before gamma; no beta where it is null.
template <class Row, class T>
void WriteInDouble(Row x, const float* gamma, const float* beta, T* y, std::size_t n, double mean,
                   double scale) {
  const WideTag d;
  const hn::Rebind<float, WideTag> narrow;
  const std::size_t lanes = hn::Lanes(d);
  const auto write = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const WideVector centred = hn::Sub(LoadWide(x + i, fill), hn::Set(d, mean));
    const auto scaled = hn::DemoteTo(narrow, hn::Mul(centred, hn::Set(d, scale)));
    const auto product = hn::Mul(scaled, LoadElements(narrow, gamma + i, fill));
    const auto result =
        beta == nullptr ? product : hn::Add(product, LoadElements(narrow, beta + i, fill));
    StoreElements(result, narrow, y + i, fill);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) write(i, Whole());
  if (i < n) write(i, Part{n - i});
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
