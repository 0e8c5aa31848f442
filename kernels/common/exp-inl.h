// exp of float32 vectors at the speed of softmax and attention: range reduction, a short
// polynomial, scaling by the exponent. Not a maths library: double and other functions are not
// here. Accuracy per target is measured and asserted by tests/exp_test.cpp.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_EXP_INL_H_
#undef ROOFLANE_KERNELS_COMMON_EXP_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_EXP_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

namespace exp_detail {

namespace hn = hwy::HWY_NAMESPACE;

// Adding 1.5·2²³ to |t| < 2²² rounds t to an integer, which then stands in the low mantissa bits;
// the 127 makes it the biased exponent of 2^n, so that one shift gives 2^n.
inline constexpr float kRound = 12582912.0f;
inline constexpr float kRoundBiased = kRound + 127.0f;
inline constexpr float kLog2E = 1.44269504f;
// ln 2 in two parts: n·kLn2High is exact for |n| < 2¹⁵ (9 significant bits), also without FMA.
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
// exp(x) is at least 2⁻¹²⁶, the smallest normal float, from here on: -126·ln 2 rounded up.
inline constexpr float kLeastNormal = -87.3365402f;

// exp(r) for |r| <= ln2/2 (1 + 2⁻¹⁶): minimax in relative error (Remez) with the first two
// coefficients held at 1, so that exp(0) is exactly 1. Relative error 1.76u before rounding,
// u = 2⁻²⁴; a sixth degree would make it 0.05u for one more multiply-add in about ten operations.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ReducedExp(D d, V r) {
  V p = hn::Set(d, 8.312524296e-3f);
  p = hn::MulAdd(p, r, hn::Set(d, 4.189011827e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.666711420e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.999923110e-1f));
  const V one = hn::Set(d, 1.0f);
  p = hn::MulAdd(p, r, one);
  return hn::MulAdd(p, r, one);
}

// x - n·ln 2, where n is a whole number.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Reduce(D d, V x, V n) {
  const V r = hn::NegMulAdd(n, hn::Set(d, kLn2High), x);
  return hn::NegMulAdd(n, hn::Set(d, kLn2Low), r);
}

}  // namespace exp_detail

// exp(x) for x <= 88, made for x - max <= 0: within 3 ULP where the result is a normal number, and
// 0 where it would be below 2⁻¹²⁶. exp(0) is 1, exp(-inf) is 0, NaN stays NaN.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using namespace exp_detail;
  const hn::RebindToSigned<D> di;
  const V rounded = hn::MulAdd(x, hn::Set(d, kLog2E), hn::Set(d, kRoundBiased));
  const V n = hn::Sub(rounded, hn::Set(d, kRoundBiased));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, rounded)));
  const V result = hn::Mul(ReducedExp(d, Reduce(d, x, n)), scale);
  // Also wipes what the shift made of exponents below -126. False for NaN, which stays.
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLeastNormal)), result);
}

// exp(x) for every float: within 3 ULP, subnormal results included. exp(-inf) is 0, inf from
// 88.7229 on, NaN stays NaN. About a third slower than ExpNonPositive.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using namespace exp_detail;
  const hn::RebindToSigned<D> di;
  using VI = hn::Vec<decltype(di)>;
  const V rounded = hn::MulAdd(x, hn::Set(d, kLog2E), hn::Set(d, kRound));
  const V n = hn::Sub(rounded, hn::Set(d, kRound));
  // 2^n as a product of two powers: alone it leaves the range of normal numbers.
  const VI whole = hn::Sub(hn::BitCast(di, rounded), hn::BitCast(di, hn::Set(d, kRound)));
  const VI half = hn::ShiftRight<1>(whole);
  const VI bias = hn::Set(di, 127);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  V result = hn::Mul(hn::Mul(ReducedExp(d, Reduce(d, x, n)), scale1), scale2);
  // Beyond these the product above has long under- or overflowed, and farther out n is garbage.
  result = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -104.0f)), result);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 89.0f)),
                        hn::Set(d, std::numeric_limits<float>::infinity()), result);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
