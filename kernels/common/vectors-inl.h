// Highway's names for kernels (`namespace hn`), with vectors and masks that arrays and classes may
// hold at every ISA target. Those of SVE have no size as types, unless they are declared to have
// the length that the file is compiled for (the build's option sve_bits). They
// convert to and from Highway's own.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_VECTORS_INL_H_
#undef ROOFLANE_KERNELS_COMMON_VECTORS_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_VECTORS_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
// Whether the target is SVE. Highway's HWY_HAVE_SCALABLE leaves out, in newer versions, the targets
// of one length.
#undef ROOFLANE_SVE
#if HWY_ARCH_ARM_A64 && (HWY_TARGET & (HWY_SVE | HWY_SVE_256 | HWY_SVE2_128))
#define ROOFLANE_SVE 1
#else
#define ROOFLANE_SVE 0
#endif
// Whether it is at a fixed length. The compiler's own macro of the length comes too late for the
// preprocessor, which reads a file before a target's region begins.
#undef ROOFLANE_SIZED_SVE
#if ROOFLANE_SVE && defined(ROOFLANE_VECTOR_BITS)
#define ROOFLANE_SIZED_SVE 1
#else
#define ROOFLANE_SIZED_SVE 0
#endif
namespace rooflane::vectors {
namespace HWY_NAMESPACE {
using namespace hwy::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace)

#if ROOFLANE_SIZED_SVE

// What Highway calls such a vector, and the same with a size.
template <class V>
struct Sized;
#define ROOFLANE_SIZED(NAME, VECTOR)                                              \
  typedef VECTOR NAME __attribute__((arm_sve_vector_bits(ROOFLANE_VECTOR_BITS))); \
  template <>                                                                     \
  struct Sized<VECTOR> {                                                          \
    using type = NAME;                                                            \
  };
ROOFLANE_SIZED(SizedF16, svfloat16_t)
ROOFLANE_SIZED(SizedF32, svfloat32_t)
ROOFLANE_SIZED(SizedF64, svfloat64_t)
ROOFLANE_SIZED(SizedS8, svint8_t)
ROOFLANE_SIZED(SizedS16, svint16_t)
ROOFLANE_SIZED(SizedS32, svint32_t)
ROOFLANE_SIZED(SizedS64, svint64_t)
ROOFLANE_SIZED(SizedU8, svuint8_t)
ROOFLANE_SIZED(SizedU16, svuint16_t)
ROOFLANE_SIZED(SizedU32, svuint32_t)
ROOFLANE_SIZED(SizedU64, svuint64_t)
ROOFLANE_SIZED(SizedMask, svbool_t)
#undef ROOFLANE_SIZED

template <class D>
using Vec = typename Sized<hwy::HWY_NAMESPACE::Vec<D>>::type;
template <class D>
using Mask = SizedMask;

// All lanes of a tag's vector, because the length is known.
template <typename T, std::size_t kMost, int kPow2>
constexpr std::size_t MaxLanes(hwy::HWY_NAMESPACE::Simd<T, kMost, kPow2> /*d*/) {
  constexpr std::size_t whole = ROOFLANE_VECTOR_BITS / 8 / sizeof(T);
  return std::min(kPow2 < 0 ? whole >> -kPow2 : whole, kMost);
}
template <class D>
constexpr std::size_t Lanes(D d) {
  return MaxLanes(d);
}

// Two of Highway's functions that mix the vectors they take with others of their own.
template <class V, class VSign>
HWY_INLINE auto CopySignToAbs(V abs, VSign sign) {
  using Own = hwy::HWY_NAMESPACE::Vec<DFromV<V>>;
  return hwy::HWY_NAMESPACE::CopySignToAbs(Own(abs), Own(sign));
}
template <class D, class VNarrow, class V>
HWY_INLINE auto ReorderWidenMulAccumulate(D d, VNarrow a, VNarrow b, V sum0, V& sum1) {
  hwy::HWY_NAMESPACE::Vec<D> odd = sum1;
  const auto even = hwy::HWY_NAMESPACE::ReorderWidenMulAccumulate(d, a, b, sum0, odd);
  sum1 = odd;
  return even;
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::vectors

#if ROOFLANE_SIZED_SVE
namespace hwy {
namespace HWY_NAMESPACE {
// Highway's functions that take any vector ask for its tag.
#define ROOFLANE_SIZED(NAME, VECTOR) \
  template <>                        \
  struct DFromV_t<rooflane::vectors::HWY_NAMESPACE::NAME> : DFromV_t<VECTOR> {};
ROOFLANE_SIZED(SizedF16, svfloat16_t)
ROOFLANE_SIZED(SizedF32, svfloat32_t)
ROOFLANE_SIZED(SizedF64, svfloat64_t)
ROOFLANE_SIZED(SizedS8, svint8_t)
ROOFLANE_SIZED(SizedS16, svint16_t)
ROOFLANE_SIZED(SizedS32, svint32_t)
ROOFLANE_SIZED(SizedS64, svint64_t)
ROOFLANE_SIZED(SizedU8, svuint8_t)
ROOFLANE_SIZED(SizedU16, svuint16_t)
ROOFLANE_SIZED(SizedU32, svuint32_t)
ROOFLANE_SIZED(SizedU64, svuint64_t)
#undef ROOFLANE_SIZED
}  // namespace HWY_NAMESPACE
}  // namespace hwy
#endif
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
