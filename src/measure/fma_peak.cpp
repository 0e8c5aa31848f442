// FMA peak, compiled once per Highway target. The loop holds only register arithmetic; see
// fma_peak.hpp for what it promises.
#include "measure/fma_peak.hpp"

#include <cstddef>
#include <utility>

#include "measure/together.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/fma_peak.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent accumulators: at least latency × ports, with room for the scheduler, and with x and y
// within the architectural registers.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
// Baseline instructions: multiply then add, 3+3 to 4+4 cycles in sequence on up to 2 ports; 16
// registers.
constexpr int kVectors = 14;
// The compiler may vectorise code of these targets with the baseline's 128-bit instructions, and a
// roof must hold for that too: hence explicit 128-bit vectors.
using V = float __attribute__((vector_size(16)));
constexpr std::size_t Lanes() { return 4; }
HWY_INLINE V Broadcast(float value) { return V{value, value, value, value}; }
HWY_INLINE V MultiplyAdd(V a, V x, V y) { return a * x + y; }
HWY_INLINE V Plus(V a, V b) { return a + b; }
HWY_INLINE float First(V a) { return a[0]; }
#else
#if HWY_TARGET == HWY_AVX2
constexpr int kVectors = 12;  // FMA: 4-5 cycles × 2 ports = 8-10; 16 registers
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
constexpr int kVectors = 14;  // SSE: multiply then add, 6-8 cycles × up to 2 ports; 16 registers
#else
constexpr int kVectors = 24;  // FMA: 4-5 cycles × 2 ports (x86), × 4 (Arm) = 16-20; 32 registers
#endif
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
HWY_INLINE std::size_t Lanes() { return hn::Lanes(D()); }
HWY_INLINE V Broadcast(float value) { return hn::Set(D(), value); }
HWY_INLINE V MultiplyAdd(V a, V x, V y) { return hn::MulAdd(a, x, y); }
HWY_INLINE V Plus(V a, V b) { return hn::Add(a, b); }
HWY_INLINE float First(V a) { return hn::GetLane(a); }
#endif

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// Products of int16 added in pairs, y added to these.
struct Pairs {
  using D = hn::ScalableTag<std::int32_t>;
  using V = hn::Vec<D>;
  static HWY_INLINE V MultiplyAdd(V a, V x, V y) {
    const hn::Repartition<std::int16_t, D> d16;
    V unused = hn::Zero(D());
    return hn::ReorderWidenMulAccumulate(D(), hn::BitCast(d16, a), hn::BitCast(d16, x), y, unused);
  }
  template <class... Vs>
  static HWY_INLINE std::int32_t RunOn(std::int64_t steps, V x, V y, Vs... a) {
    for (; steps > 0; --steps) ((a = MultiplyAdd(a, x, y)), ...);
    V sum = y;
    ((sum = hn::Add(sum, a)), ...);
    return hn::GetLane(sum);
  }
  template <std::size_t... I>
  static HWY_INLINE std::int32_t RunAll(std::int64_t steps, std::index_sequence<I...>) {
    return RunOn(steps, hn::Set(D(), 1), hn::Set(D(), 2),
                 hn::Set(D(), static_cast<std::int32_t>(I))...);
  }
};
void RunPairs(std::int64_t steps) {
  keep(Pairs::RunAll(steps, std::make_index_sequence<kVectors>()));
}
// Two products and two sums a lane.
double PairOperationsPerStep() {
  return 4.0 * kVectors * static_cast<double>(hn::Lanes(Pairs::D()));
}
#else
void RunPairs(std::int64_t) {}
double PairOperationsPerStep() { return 0; }
#endif

// The accumulators are a parameter pack, not an array: each is a variable of its own, so none can
// end up on the stack, and sizeless vectors (SVE) work.
template <class... Vs>
HWY_INLINE float RunOn(std::int64_t steps, V x, V y, Vs... a) {
  for (; steps > 0; --steps) ((a = MultiplyAdd(a, x, y)), ...);
  V sum = y;
  ((sum = Plus(sum, a)), ...);
  return First(sum);
}

// Different start values keep the compiler from merging equal chains.
template <std::size_t... I>
HWY_INLINE float RunAll(std::int64_t steps, float x, float y, std::index_sequence<I...>) {
  return RunOn(steps, Broadcast(x), Broadcast(y), Broadcast(x + static_cast<float>(I))...);
}

float RunFma(std::int64_t steps, float x, float y) {
  return RunAll(steps, x, y, std::make_index_sequence<kVectors>());
}

int FmaVectors() { return kVectors; }
double FmaFlopsPerStep() { return 2.0 * kVectors * static_cast<double>(Lanes()); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "backends/highway.hpp"

namespace rooflane {

HWY_EXPORT(RunFma);
HWY_EXPORT(RunPairs);
HWY_EXPORT(PairOperationsPerStep);
HWY_EXPORT(FmaVectors);
HWY_EXPORT(FmaFlopsPerStep);

FmaLoop fma_loop(std::int64_t target) {
  return {ROOFLANE_HWY_FUNCTION(RunFma, target), ROOFLANE_HWY_FUNCTION(FmaFlopsPerStep, target)(),
          ROOFLANE_HWY_FUNCTION(FmaVectors, target)()};
}

std::optional<UnitLoop> pair_loop(std::int64_t target) {
  const double operations = ROOFLANE_HWY_FUNCTION(PairOperationsPerStep, target)();
  if (operations == 0) return std::nullopt;
  return UnitLoop{"int8", "pmaddwd", nullptr, ROOFLANE_HWY_FUNCTION(RunPairs, target), operations};
}

double measure_fma_gflops(std::int64_t target, int threads, double seconds) {
  const FmaLoop loop = fma_loop(target);
  // About 4 M multiply-adds: 0.5 ms at 4 GHz and 2 a cycle. Short, so that some repeats fall
  // between two disturbances of a shared machine; long against the barrier's 0.1 to 1 µs.
  const std::int64_t steps = 4'000'000 / loop.vectors;
  const double flops = loop.flops_per_step * static_cast<double>(steps) * threads;
  Together together(threads);
  const auto repeat = [&] {
    return together.run_ns([&](int) { keep(loop.run(steps, 0.5f, 1.0f)); });
  };

  // Two repeats bring the core to the clock rate of this instruction set (up to 1 ms on older
  // Intel); the least number of timed ones is 3, whatever the budget.
  repeat();
  repeat();
  const Stopwatch watch;
  double best_ns = repeat();
  for (int n = 1; n < 3 || watch.seconds() < seconds; ++n) best_ns = std::min(best_ns, repeat());
  return flops / best_ns;
}

}  // namespace rooflane
#endif  // HWY_ONCE
