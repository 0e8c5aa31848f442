// Unfused float operations, compiled once per Highway target, and the timing of their rate and
// that of exp. See math_rates.hpp for what they promise.
#include "measure/math_rates.hpp"

#include <cstddef>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/math_rates.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Independent vectors: latency 4 × up to 4 ports (two for adds beside two for products) = 16 where
// there are 32 registers; with 16 registers three hold x, y and z, and one stays free.
#if HWY_ARCH_X86 && HWY_TARGET >= HWY_AVX2
constexpr int kVectors = 12;
#else
constexpr int kVectors = 24;
#endif
// The operations of softmax in equal parts: sum, scale, maximum, difference. No product is added
// to, so that no compiler makes a multiply-add of two. A parameter pack: fma_peak.cpp says why.
template <class... Vs>
HWY_INLINE float UnfusedOn(std::int64_t steps, V x, V y, V z, Vs... a) {
  for (; steps > 0; --steps) {
    ((a = hn::Add(a, z)), ...);
    ((a = hn::Mul(a, x)), ...);
    ((a = hn::Max(a, y)), ...);
    ((a = hn::Sub(a, y)), ...);
  }
  return (hn::GetLane(a) + ...);
}

template <std::size_t... I>
HWY_INLINE float UnfusedAll(std::int64_t steps, float x, float y, float z,
                            std::index_sequence<I...>) {
  const D d;
  return UnfusedOn(steps, hn::Set(d, x), hn::Set(d, y), hn::Set(d, z),
                   hn::Set(d, x + static_cast<float>(I))...);
}

float RunUnfused(std::int64_t steps, float x, float y, float z) {
  return UnfusedAll(steps, x, y, z, std::make_index_sequence<kVectors>());
}

int UnfusedVectors() { return kVectors; }
double UnfusedFlopsPerStep() { return 4.0 * kVectors * static_cast<double>(hn::Lanes(D())); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "backends/highway.hpp"
#include "core/exp_loop.hpp"
#include "measure/together.hpp"

namespace rooflane {

HWY_EXPORT(RunUnfused);
HWY_EXPORT(UnfusedVectors);
HWY_EXPORT(UnfusedFlopsPerStep);

namespace {

// Operations per nanosecond at best. As with the FMA peak, two untimed repeats bring the clock to
// the instruction set's, and at least three are timed.
template <class Repeat>
double best_rate(double operations, double seconds, Repeat&& repeat) {
  repeat();
  repeat();
  const Stopwatch watch;
  double best_ns = repeat();
  for (int n = 1; n < 3 || watch.seconds() < seconds; ++n) best_ns = std::min(best_ns, repeat());
  return operations / best_ns;
}

}  // namespace

UnfusedLoop unfused_loop(std::int64_t target) {
  return {ROOFLANE_HWY_FUNCTION(RunUnfused, target),
          ROOFLANE_HWY_FUNCTION(UnfusedFlopsPerStep, target)(),
          ROOFLANE_HWY_FUNCTION(UnfusedVectors, target)()};
}

MathRates measure_math_rates(std::int64_t target, int threads, double seconds) {
  const UnfusedLoop unfused = unfused_loop(target);
  const ExpLoop exp = exp_loop(target);
  Together together(threads);
  // Repeats of about 0.3 ms, for the reasons given at the FMA peak: 4 M vector operations, and
  // 200 k vectors of exps at some 6 cycles each.
  const std::int64_t unfused_steps = 1'000'000 / unfused.vectors;
  constexpr std::int64_t exp_steps = 25'000;
  MathRates rates;
  rates.unfused_gflops = best_rate(
      unfused.flops_per_step * static_cast<double>(unfused_steps) * threads, seconds / 2, [&] {
        return together.run_ns([&](int) { keep(unfused.run(unfused_steps, 0.5f, 0.25f, 1.0f)); });
      });
  rates.exp_g_s =
      best_rate(exp.exps_per_step * static_cast<double>(exp_steps) * threads, seconds / 2,
                [&] { return together.run_ns([&](int) { keep(exp.run(exp_steps, -1.0f)); }); });
  return rates;
}

}  // namespace rooflane
#endif  // HWY_ONCE
