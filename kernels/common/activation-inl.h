// Activation functions of float32 vectors: relu, gelu (by erf and by tanh), silu. tanh is in
// tanh-inl.h. tests/elements_test.cpp measures their accuracy and asserts it.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_ACTIVATION_INL_H_
#undef ROOFLANE_KERNELS_COMMON_ACTIVATION_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_ACTIVATION_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/tanh-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// max(x, 0), NaN where x is.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Relu(D d, V x) {
  return exp_detail::AtLeast(d, x, 0.0f);
}

// x / (1 + exp(-t)) where x and t have one sign, or t is NaN. It uses e = exp(-|t|), because e <= 1
// cannot overflow: x·e / (1 + e) where t is negative. Relative error below 8u for an exact t.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V TimesSigmoid(D d, V x, V t) {
  namespace hn = vectors::HWY_NAMESPACE;
  const V e = ExpNonPositive(d, hn::Neg(hn::Abs(t)));
  const V one = hn::Set(d, 1.0f);
  const V upper = hn::IfThenElse(hn::Lt(t, hn::Zero(d)), hn::Mul(x, e), x);
  return hn::Div(upper, hn::Add(one, e));
}

// x / (1 + exp(-x)). (Elfwing, Uchibe & Doya, arXiv 1702.03118.)
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  return TimesSigmoid(d, x, x);
}

// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), which is x / (1 + exp(-2√(2/π)·(x + 0.044715·x³))): no
// difference of nearly equal numbers where x is negative.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V GeluTanh(D d, V x) {
  namespace hn = vectors::HWY_NAMESPACE;
  constexpr float linear = 1.59576912f;   // 2√(2/π)
  constexpr float cubic = 0.0713548163f;  // 0.044715 times that
  const V square = hn::Mul(x, x);
  const V t = hn::Mul(x, hn::MulAdd(square, hn::Set(d, cubic), hn::Set(d, linear)));
  return TimesSigmoid(d, x, t);
}

// Φ(x) = (1 + erf(x/√2))/2, the share of a normal distribution below x: |error| <= 3.3u·Φ(|x|),
// u = 2⁻²⁴; exactly 0 from -5.75 down and 1 from 5.75 on, NaN where x is.
//
// Φ(x) - 1/2 = x·P(x²)/Q(x²) for |x| < 5.54, where it is below 1/2 in float32: minimax in relative
// error (Remez) among the quotients of degrees 5 and 5, 0.32u; all coefficients are positive, so
// that neither sum cancels. The coefficients as float32 are those neighbours of the rounded ones
// that gave the least greatest error. Beyond the interval the quotient grows above 1/2 (by 8u at
// 5.75, more than it may lose by roundings), hence the two minima.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V NormalBelow(D d, V x) {
  namespace hn = vectors::HWY_NAMESPACE;
  constexpr float p[] = {3.98942292e-1f, 3.35489027e-2f, 4.65528201e-3f,
                         1.65250705e-4f, 6.28350426e-6f, 2.27159269e-8f};
  constexpr float q[] = {1.0f,           2.50761092e-1f, 2.84631904e-2f,
                         1.86458288e-3f, 7.22647019e-5f, 1.19141362e-6f};
  const V magnitude = AtMost(d, hn::Abs(x), 5.75f);
  const V square = hn::Mul(magnitude, magnitude);
  const V ratio = hn::Div(hn::Mul(magnitude, Polynomial(d, square, p)), Polynomial(d, square, q));
  const V half = hn::Set(d, 0.5f);
  return hn::Add(half, hn::CopySignToAbs(AtMost(d, ratio, 0.5f), x));
}

// x·Φ(x). (Hendrycks & Gimpel, arXiv 1606.08415.)
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Gelu(D d, V x) {
  return vectors::HWY_NAMESPACE::Mul(x, NormalBelow(d, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
