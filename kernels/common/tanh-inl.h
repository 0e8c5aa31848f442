// tanh of float32 vectors without branches: one odd rational function and one division. Accuracy
// per target is measured and asserted by tests/tanh_test.cpp.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_TANH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_TANH_INL_H_
#undef ROOFLANE_KERNELS_COMMON_TANH_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_TANH_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// min(x, most), or NaN where x is.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V AtMost(D d, V x, float most) {
  namespace hn = vectors::HWY_NAMESPACE;
  const V bound = hn::Set(d, most);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(bound, x);  // minps: the second operand where one is NaN
#else
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#endif
}

// c[i] + c[i + 1]·z + … + c[n - 1]·z^(n - 1 - i).
template <std::size_t i = 0, class D, std::size_t n, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Polynomial(D d, V z, const float (&c)[n]) {
  namespace hn = vectors::HWY_NAMESPACE;
  const V first = hn::Set(d, c[i]);
  if constexpr (i + 1 == n) {
    return first;
  } else {
    return hn::MulAdd(Polynomial<i + 1>(d, z, c), z, first);
  }
}

// tanh(x) for every float: |tanh| <= 1, tanh(-x) = -tanh(x) and tanh(x) = x for |x| < 2⁻¹³ to the
// bit, ±1 from ±9.4 on, NaN stays NaN. Over all floats the greatest error is 5.26 ULP with
// FMA, 6.02 without, and as much in units of u·|tanh|, u = 2⁻²⁴; the mean is 0.6.
//
// tanh(x) = x·P(x²)/Q(x²) for |x| < 9.02, where float32's tanh is below 1: minimax in relative
// error (Remez) among the quotients of degrees 4 and 4 with P(0) = Q(0), which is 0.37u, u = 2⁻²⁴.
// All coefficients are positive, so that neither sum cancels; what is left are the roundings of
// both sums (about 1.3u each), the product and the division. The coefficients as float32 are those
// neighbours of the rounded ones that gave the least greatest error. Beyond the interval the
// quotient grows above 1 (by 4u at 9.4, more than it may lose by roundings), hence the two minima.
// Degrees 5 and 4 would make it 0.02u before and 5.0 ULP after roundings.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  namespace hn = vectors::HWY_NAMESPACE;
  constexpr float p[] = {1.0f, 1.33829117e-1f, 3.49772489e-3f, 2.06402055e-5f, 1.33903574e-8f};
  constexpr float q[] = {1.0f, 4.67162341e-1f, 2.58853771e-2f, 3.28895345e-4f, 7.79273478e-7f};
  const V magnitude = AtMost(d, hn::Abs(x), 9.4f);
  const V square = hn::Mul(magnitude, magnitude);
  const V ratio = hn::Div(hn::Mul(magnitude, Polynomial(d, square, p)), Polynomial(d, square, q));
  return hn::CopySignToAbs(AtMost(d, ratio, 1.0f), x);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
