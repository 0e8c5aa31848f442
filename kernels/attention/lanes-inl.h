// The vector type of attention's loops, and its length.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_ATTENTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_ATTENTION_LANES_INL_H_
#undef ROOFLANE_KERNELS_ATTENTION_LANES_INL_H_
#else
#define ROOFLANE_KERNELS_ATTENTION_LANES_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

inline constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

inline std::int64_t LaneCount() { return static_cast<std::int64_t>(hn::Lanes(D())); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
