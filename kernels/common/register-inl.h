// Keeping a loaded vector in a register.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_COMMON_REGISTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_COMMON_REGISTER_INL_H_
#undef ROOFLANE_KERNELS_COMMON_REGISTER_INL_H_
#else
#define ROOFLANE_KERNELS_COMMON_REGISTER_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// v, which was loaded and which kUses multiply-adds read. GCC 12 would rather make a load that two
// of them read an operand in memory of both, and of up to four where accumulators leave few
// registers: the loads, not the multiply-adds, are then what a core does most (Zen 4, two rows
// of c, 136 columns along k = 619: 6.4 → 4.5 µs).
template <int kUses, class V>
HWY_INLINE V InRegister(V v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && \
    (HWY_COMPILER_GCC || HWY_COMPILER_CLANG)
  if constexpr (kUses >= 2) __asm__("" : "+v"(v.raw));
#endif
  return v;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
