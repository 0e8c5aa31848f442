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

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

namespace exp_detail {

namespace hn = vectors::HWY_NAMESPACE;

// Adding 1.5·2²³ to |t| < 2²² rounds t to an integer in the low mantissa bits. The 127 makes it the
// biased exponent of 2^n, so that one shift computes 2^n.
inline constexpr float kRound = 12582912.0f;
inline constexpr float kRoundBiased = kRound + 127.0f;
inline constexpr float kLog2E = 1.44269504f;
// ln 2 in two parts: n·kLn2High is exact for |n| < 2¹⁵ (9 significant bits), also without FMA.
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;

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

// -127·ln 2: from here down n is -127, 2^n reads as 0, and so does the result.
inline constexpr float kFlush = -88.0296918f;

// max(x, least), or NaN where x is.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AtLeast(D d, V x, float least) {
  const V bound = hn::Set(d, least);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(bound, x);  // maxps: the second operand where one is NaN
#else
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}

// Bits of 2^(j/32) less j·2¹⁸, so that adding (32·k + j)·2¹⁸ gives the bits of 2^(k + j/32).
alignas(64) inline constexpr std::uint32_t kPowers32[32] = {
    0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
    0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
    0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
    0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3};
// The same for eighths: 2^(j/8) less j·2²⁰.
alignas(32) inline constexpr std::uint32_t kPowers8[8] = {
    0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};

// How many powers of two between 1 and 2 a shuffle of registers looks up: 32 in two AVX-512
// registers, 8 in one of AVX2; 1 where there is no such shuffle.
template <class D>
constexpr std::size_t Powers() {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if (hn::MaxLanes(D()) == 16) return 32;
#endif
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  if (hn::MaxLanes(D()) == 8) return 8;
#endif
  return 1;
}

// Entry (index mod kPowers) of the table of powers.
template <std::size_t kPowers, class D, class VI>
HWY_INLINE VI LookUp(D /*d*/, [[maybe_unused]] VI index) {
  const hn::RebindToSigned<D> di;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if constexpr (kPowers == 32) {
    const auto* table = reinterpret_cast<const std::int32_t*>(kPowers32);
    return VI{_mm512_permutex2var_epi32(hn::Load(di, table).raw, index.raw,
                                        hn::Load(di, table + 16).raw)};
  }
#endif
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  if constexpr (kPowers == 8) {
    const auto* table = reinterpret_cast<const std::int32_t*>(kPowers8);
    return VI{_mm256_permutevar8x32_epi32(hn::Load(di, table).raw, index.raw)};
  }
#endif
  return hn::Set(di, 0x3f800000);
}

// exp of each x[I] by powers of 2^(1/kPowers) for kFlush <= x <= 88: with the range of r so short,
// two or three coefficients do. The scale multiplies and is added to in one rounding.
template <std::size_t kPowers, class D, class V, std::size_t... I>
HWY_INLINE void ExpByTable(D d, V* x, std::index_sequence<I...>) {
  const hn::RebindToSigned<D> di;
  constexpr float scale = static_cast<float>(kPowers);
  const V rounded[] = {hn::MulAdd(x[I], hn::Set(d, kLog2E * scale), hn::Set(d, kRound))...};
  const V n[] = {hn::Sub(rounded[I], hn::Set(d, kRound))...};
  // |n| < 2¹² here, so n·kLn2High has 21 significant bits and is still exact.
  V r[] = {hn::NegMulAdd(n[I], hn::Set(d, kLn2High / scale), x[I])...};
  ((r[I] = hn::NegMulAdd(n[I], hn::Set(d, kLn2Low / scale), r[I])), ...);
  constexpr int shift = kPowers == 32 ? 18 : 20;
  const auto power_of = [=](V of) HWY_ATTR {
    const auto index = hn::BitCast(di, of);
    return hn::BitCast(d, hn::Add(LookUp<kPowers>(d, index), hn::ShiftLeft<shift>(index)));
  };
  const V power[] = {power_of(rounded[I])...};
  // (exp(r) - 1)/r, minimax in relative error of exp: 0.90u and 0.46u before rounding.
  if constexpr (kPowers == 32) {
    ((x[I] = hn::MulAdd(r[I], hn::Set(d, 4.999999702e-1f), hn::Set(d, 1.000014663f))), ...);
  } else {
    ((x[I] = hn::MulAdd(r[I], hn::Set(d, 1.666429341e-1f), hn::Set(d, 5.000649095e-1f))), ...);
    ((x[I] = hn::MulAdd(x[I], r[I], hn::Set(d, 1.0f))), ...);
  }
  ((x[I] = hn::MulAdd(hn::Mul(x[I], r[I]), power[I], power[I])), ...);
}

// The same without a table.
template <class D, class V, std::size_t... I>
HWY_INLINE void ExpByPolynomial(D d, V* x, std::index_sequence<I...>) {
  const hn::RebindToSigned<D> di;
  const V rounded[] = {hn::MulAdd(x[I], hn::Set(d, kLog2E), hn::Set(d, kRoundBiased))...};
  const V n[] = {hn::Sub(rounded[I], hn::Set(d, kRoundBiased))...};
  const V scale[] = {hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, rounded[I])))...};
  ((x[I] = hn::Mul(ReducedExp(d, Reduce(d, x[I], n[I])), scale[I])), ...);
}

}  // namespace exp_detail

// exp of several vectors step by step, so that independent instructions fill the latencies.
template <std::size_t kCount, class D, class V>
HWY_INLINE void ExpNonPositive(D d, V (&x)[kCount]) {
  using namespace exp_detail;
  for (V& v : x) v = AtLeast(d, v, kFlush);
  constexpr std::size_t powers = Powers<D>();
  if constexpr (powers > 1) {
    ExpByTable<powers>(d, x, std::make_index_sequence<kCount>());
  } else {
    ExpByPolynomial(d, x, std::make_index_sequence<kCount>());
  }
}

// exp(x) for x <= 88, made for x - max <= 0: within 3 ULP where the result is a normal number,
// between 0 and 2⁻¹²⁶ where it would be below that, and 0 for x <= -88.03. exp(0) is 1, exp(-inf)
// is 0, NaN stays NaN. The greatest error over all floats from -104 to 88 is 1.74 ULP with AVX-512,
// 1.16 with AVX2, 2.41 without a table (tests/exp_test.cpp goes through them). 12 operations with
// AVX-512, 13 with AVX2, 13 without a table; on a Zen 5 the table of 32 makes 1.25 times as many a
// second as the polynomial of degree 5, one of 16 with three coefficients 1.15 times, scalefps 1.08
// times.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  vectors::HWY_NAMESPACE::Vec<D> one[] = {x};
  ExpNonPositive(d, one);
  return one[0];
}

// exp(x) for every float: within 3 ULP, subnormal results included. exp(-inf) is 0, inf from
// 88.7229 on, NaN stays NaN. About a third slower than ExpNonPositive.
template <class D, class V = vectors::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  namespace hn = vectors::HWY_NAMESPACE;
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
