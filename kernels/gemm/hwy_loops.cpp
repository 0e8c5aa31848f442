// GEMM: the loops of a schedule's path, as hwy_floats.cpp calls them for an ISA target, and packing
// ahead of runs (prepack=1). kernels/meson.build compiles this file once per ROOFLANE_UNIT (0 AVX3
// and SVE, 1 AVX2, 2 all other targets), as it takes longest to build. The loops themselves:
// hwy_loops-inl.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_loops.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/gemm/hwy_loops-inl.h"
#include "kernels/gemm/unit.hpp"

#undef ROOFLANE_UNIT_OF_TARGET
#if HWY_TARGET == HWY_AVX3 || ROOFLANE_SVE
#define ROOFLANE_UNIT_OF_TARGET 0
#elif HWY_TARGET == HWY_AVX2
#define ROOFLANE_UNIT_OF_TARGET 1
#else
#define ROOFLANE_UNIT_OF_TARGET 2
#endif

#if ROOFLANE_UNIT_OF_TARGET == ROOFLANE_UNIT
HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

void Run(const Job& job) {
  switch (job.path) {
    case Path::few_rows:  // not of float32
    case Path::scale:     // no product
      break;
    case Path::dot:
      RunDot(job);
      break;
    case Path::outer:
      RunOuter(job);
      break;
    case Path::unpacked:
      RunUnpacked(job);
      break;
    case Path::packed:
      RunPacked(job);
      break;
  }
}

// b of prepack=1, [batch] times k·n floats: rows [n,k] where b is the skinny operand, else blocks
// of kc rows in B micro-panels, as the packed path reads them.
void Pack(const Job& job, const MatrixView& b, float* to) {
  const Gemm& g = job.g;
  const MicroPanels b_panels = AllOf(g.n);
  const int64_t blocks = job.transposed ? 1 : (g.k + job.kc - 1) / job.kc;
  parallel_for(job.pool, job.threads, g.batch * blocks, [&](int64_t task, int) {
    const int64_t batch = task / blocks;
    const float* from = b.f32() + batch * b.batch_stride;
    float* out = to + batch * g.k * g.n;
    if (job.transposed) {
      PackAlongK(from, b, g.n, g.k, out, g.k);
      return;
    }
    const int64_t p = task % blocks * job.kc;
    PackB(b, from + p * b.inner, std::min(job.kc, g.k - p), b_panels, 0, b_panels.count(),
          out + p * g.n);
  });
}

MicroTile MicroTileOfTarget() { return Registers(); }

// float32's micro-kernel on operands of any format (hwy_units.cpp): micro-panels of float32, or
// float32 in place.
void MultiplyPanels(const MicroCall& call) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(DF()));
  const std::int64_t vectors = (call.cols + lanes - 1) / lanes;
  const auto* const later = reinterpret_cast<const float*>(call.later);
  const bool later_b = later != nullptr;
  PrefetchQueue queues[2];
  MicroKernelArgs t;
  t.a = reinterpret_cast<const float*>(call.a);
  t.a_outer = call.a_in_place ? call.a_row : 1;
  t.a_inner = call.a_in_place ? call.a_step : call.rows;
  t.b = reinterpret_cast<const float*>(call.b);
  t.ldb = call.b_in_place ? call.b_step : kNv * lanes;
  t.k = call.steps;
  t.cols = call.cols;
  t.c = reinterpret_cast<float*>(call.sums);
  t.c0 = t.c;
  t.ldc = t.ldc0 = call.ld;
  t.alpha = 1;
  t.beta = call.add ? 1.0f : 0.0f;
  t.queues = queues;
  if (!call.a_in_place && !call.b_in_place) {
    if (later_b) queues[1] = PrefetchQueue(later, 16 * call.later_lines, call.steps / 8 + 1);
    return MicroKernelFor<true, 0>(call.rows, vectors)(t);
  }
  if (later_b && call.b_in_place) {
    t.prefetch = later, t.prefetch_step = t.ldb;
    return MicroKernelFor<false, 3>(call.rows, vectors)(t);
  }
  t.prefetch = later_b ? later : t.a + call.rows * t.a_outer;  // the next micro-tile's first row
  t.prefetch_step = later_b ? 16 : t.a_inner;
  MicroKernelFor<false, 1>(call.rows, vectors)(t);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();
#endif
