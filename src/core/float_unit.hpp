// What a thread's floating-point unit is set to: rounding mode, and whether denormals are zeros.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rooflane {

inline std::uint32_t float_unit_state() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fU;  // without the status flags
#elif defined(__aarch64__)
  std::uint64_t state;
  asm volatile("mrs %0, fpcr" : "=r"(state));
  return static_cast<std::uint32_t>(state);
#else
  return 0;
#endif
}

inline void set_float_unit_state(std::uint32_t state) {
#if defined(__x86_64__)
  _mm_setcsr(state);
#elif defined(__aarch64__)
  const std::uint64_t wide = state;
  asm volatile("msr fpcr, %0" ::"r"(wide));
#else
  (void)state;
#endif
}

}  // namespace rooflane
