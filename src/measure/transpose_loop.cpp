// The transposed copy, compiled once per Highway target. See transpose_loop.hpp.
#include "measure/transpose_loop.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/transpose_loop.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's HWY_HAVE_SCALABLE leaves out, in newer versions, SVE of one length.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE || \
    (HWY_ARCH_ARM_A64 && (HWY_TARGET & (HWY_SVE_256 | HWY_SVE2_128)))

// Without vectors of a known size: squares of 16, so that every line of 64 bytes is used up while
// L1 holds it.
void Transpose(const float* HWY_RESTRICT from, std::int64_t n, float* HWY_RESTRICT to) {
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t r = 0; r < n; r += kBlock) {
    for (std::int64_t c = 0; c < n; c += kBlock) {
      for (std::int64_t i = 0; i < kBlock; ++i) {
        for (std::int64_t j = 0; j < kBlock; ++j) {
          to[(c + i) * n + r + j] = from[(r + j) * n + c + i];
        }
      }
    }
  }
}

#else

using DF = hn::CappedTag<float, 16>;

// A vector; its block b of four floats comes from row 4b: 128-bit shuffles then transpose all
// blocks at once.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const float* from, std::int64_t n) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const auto rows = static_cast<std::int64_t>(hn::Lanes(half));
    return hn::Combine(d, LoadBlocks(half, from + rows * n, n), LoadBlocks(half, from, n));
  }
}

void Transpose(const float* HWY_RESTRICT from, std::int64_t n, float* HWY_RESTRICT to) {
  const DF d;
  const hn::RepartitionToWide<DF> pairs;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < n; r += lanes) {
    for (std::int64_t c = 0; c < n; c += 4) {
      const float* block = from + r * n + c;
      const auto r0 = LoadBlocks(d, block, n);
      const auto r1 = LoadBlocks(d, block + n, n);
      const auto r2 = LoadBlocks(d, block + 2 * n, n);
      const auto r3 = LoadBlocks(d, block + 3 * n, n);
      const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
      float* out = to + c * n + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, out + n);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, out + 2 * n);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, out + 3 * n);
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "backends/highway.hpp"

namespace rooflane {

HWY_EXPORT(Transpose);

void transpose_square(const float* from, std::int64_t n, float* to) {
  static const auto best = ROOFLANE_HWY_FUNCTION(Transpose, resolve_isa(""));
  best(from, n, to);
}

}  // namespace rooflane
#endif  // HWY_ONCE
