// The sizes of a micro-tile; whole and partial vectors with one interface, so that the
// micro-kernels' edges are fused into them: masked loads and stores where the ISA target has them.
// Next: hwy_transpose-inl.h.
#if defined(ROOFLANE_GEMM_HWY_PART_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_GEMM_HWY_PART_INL_H_
#undef ROOFLANE_GEMM_HWY_PART_INL_H_
#else
#define ROOFLANE_GEMM_HWY_PART_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {
namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// The micro-tile: kMr rows × kNv vectors. Two FMA ports of 4 cycles need 8 independent
// accumulators; the rest of the register file goes into reuse. 8 × 3 with 32 registers: 24
// accumulators, 3 of b, and a broadcast as memory operand; 11 loads serve 24 FMAs. 6 × 2 with 16
// registers and FMA: 12 + 2 + 1. Without FMA a product needs a register of its own: 4 × 2. Arm's
// cores have up to four ports, so 16 accumulators, and 32 registers of 128 bits with NEON or of any
// length with SVE: 8 × 3 too, which is BLIS's 8 × 12 and Arm Compute Library's 8 × 3 vectors.
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kMr = 8;
constexpr int kNv = 3;
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
constexpr int kMr = 6;
constexpr int kNv = 2;
#else
constexpr int kMr = 4;
constexpr int kNv = 2;
#endif

// Below AVX2 and with NEON Highway's masked loads touch the whole vector.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || ROOFLANE_SIZED_SVE
#define ROOFLANE_MASKED_LOADS 1
#else
#define ROOFLANE_MASKED_LOADS 0
#endif

// The first `count` lanes of a vector that is only partly there. Memory beyond them is not touched.
template <class D>
class Part {
 public:
  using V = hn::Vec<D>;
  static constexpr bool kLower = false;
  Part(D d, std::size_t count)
      : part_{count},
        whole_(count == hn::Lanes(d))
#if ROOFLANE_MASKED_LOADS
        ,
        mask_(hn::FirstN(d, count))
#endif
  {
  }
  HWY_INLINE V Load(D d, const float* from) const {
#if ROOFLANE_MASKED_LOADS
    return hn::MaskedLoad(mask_, d, from);
#else
    return whole_ ? hn::LoadU(d, from) : hc::LoadRow(d, from, part_);
#endif
  }
  // Masked only with AVX-512 and SVE: AVX2's masked stores are microcoded on AMD cores. Stores of
  // half, a quarter, … of a vector are not.
  HWY_INLINE void Store(V v, D d, float* to) const {
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || ROOFLANE_SIZED_SVE
    hn::BlendedStore(v, mask_, d, to);
#else
    if (whole_) {
      hn::StoreU(v, d, to);
    } else {
      hc::StoreRow(v, d, to, part_);
    }
#endif
  }

 private:
  hc::Part part_;
  bool whole_;
#if ROOFLANE_MASKED_LOADS
  hn::Mask<D> mask_;
#endif
};

#undef ROOFLANE_MASKED_LOADS

// The same interface for a vector that is all there.
struct Whole {
  static constexpr bool kLower = false;
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, const float* from) const {
    return hn::LoadU(d, from);
  }
  template <class D>
  HWY_INLINE void Store(hn::Vec<D> v, D d, float* to) const {
    hn::StoreU(v, d, to);
  }
};

// body(j, loader) for the vectors of `count` floats, from their j-th on.
template <class Body>
HWY_INLINE void ForVectors(std::int64_t count, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(DF()));
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) body(j, Whole());
  if (j < count) body(j, Part(DF(), static_cast<std::size_t>(count - j)));
}

// Until hwy_micro-inl.h ends: products of half a vector take half the time where the core splits
// 512 bits into two halves (Zen 4), and loads of half a vector cross cache lines less often.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define ROOFLANE_LOWER_PART 1
using DH = hn::Half<DF>;
using VH = hn::Vec<DH>;
HWY_INLINE VH Lower(VF v) { return hn::LowerHalf(DH(), v); }
HWY_INLINE VF Widened(VH v) { return VF{_mm512_castps256_ps512(v.raw)}; }

// The same interface for a vector with at most its lower half present.
class LowerPart {
 public:
  static constexpr bool kLower = true;
  explicit LowerPart(std::size_t count) : part_(DH(), count) {}
  HWY_INLINE VF Load(DF /*d*/, const float* from) const { return Widened(part_.Load(DH(), from)); }
  HWY_INLINE void Store(VF v, DF /*d*/, float* to) const { part_.Store(Lower(v), DH(), to); }

 private:
  Part<DH> part_;
};
#else
#define ROOFLANE_LOWER_PART 0
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#endif  // toggle
