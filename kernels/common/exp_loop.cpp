// exp of exp-inl.h in a loop without memory, compiled once per Highway target. See
// core/exp_loop.hpp.
#include "core/exp_loop.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/exp_loop.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"
// After highway.h, once for each target.
#include "kernels/common/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {
namespace hn = vectors::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Evaluations between two tests of the loop: enough that the test does not count.
constexpr int kExps = 8;

// Makes the compiler take `v` for changed and in use, at no instruction: without this it would
// compute the same exp only once. It stays in a register on the architectures named; elsewhere it
// goes through memory, one store and load an exp.
HWY_INLINE void Opaque(V& v) {
#if HWY_ARCH_X86
  asm volatile("" : "+v"(v.raw));
#elif ROOFLANE_SVE
  asm volatile("" : "+w"(v));
#elif HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  asm volatile("" : "+w"(v.raw));
#else
  asm volatile("" : "+m"(v));
#endif
}

float RunExp(std::int64_t steps, float x) {
  const D d;
  V in = hn::Set(d, x);
  V out = in;
  for (; steps > 0; --steps) {
    HWY_UNROLL(kExps)
    for (int i = 0; i < kExps; ++i) {
      Opaque(in);
      out = common::HWY_NAMESPACE::ExpNonPositive(d, in);
      Opaque(out);
    }
  }
  return hn::GetLane(out);
}

double ExpsPerStep() { return kExps * static_cast<double>(hn::Lanes(D())); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "backends/highway.hpp"

namespace rooflane {

HWY_EXPORT(RunExp);
HWY_EXPORT(ExpsPerStep);

ExpLoop exp_loop(std::int64_t target) {
  return {ROOFLANE_HWY_FUNCTION(RunExp, target), ROOFLANE_HWY_FUNCTION(ExpsPerStep, target)()};
}

}  // namespace rooflane
#endif  // HWY_ONCE
