// RMSNorm with Highway: the sum of a row's squares, then the row again, from cache where it fits,
// as the result. No division per element. The loops are LayerNorm's, without the mean
// (kernels/common/norm_rows-inl.h). See rmsnorm.hpp for the maths.
#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/norm_plan.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rmsnorm/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/norm_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::rmsnorm {
namespace HWY_NAMESPACE {

common::NormLoops LoopsFor(DType type, bool summed) {
  return common::HWY_NAMESPACE::NormLoopsFor<false>(type, summed);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::rmsnorm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::rmsnorm {
namespace {

HWY_EXPORT(LoopsFor);

struct Room {
  static constexpr common::RowWork work = {
      .vector_ops = 8, .row_ops = 40, .short_ops = 2, .long_rows = common::Prefetch::into_l2};
  static constexpr bool groups = false;
  static common::NormLoops loops(std::int64_t target, DType type, bool summed) {
    return ROOFLANE_HWY_FUNCTION(LoopsFor, target)(type, summed);
  }
};
using Op = common::NormOp<Room>;

}  // namespace

const Variant hwy = common::hwy_variant<Op, &kernel, &hwy>();

}  // namespace rooflane::rmsnorm
#endif  // HWY_ONCE
