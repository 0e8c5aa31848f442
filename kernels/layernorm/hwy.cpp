// LayerNorm with Highway: memory is visited once where a row fits the cache (mean in
// double, squares, result, all on the cached row), twice where it does not (moments of blocks
// merged, then the result). No division per element. Short rows stay in registers, several to a
// vector. The loops are kernels/common/norm_rows-inl.h; layernorm.hpp has the maths and the
// sources.
#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/norm_plan.hpp"
#include "kernels/layernorm/layernorm.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layernorm/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/norm_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::layernorm {
namespace HWY_NAMESPACE {

common::NormLoops LoopsFor(DType type, bool summed) {
  return common::HWY_NAMESPACE::NormLoopsFor<true>(type, summed);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::layernorm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::layernorm {
namespace {

HWY_EXPORT(LoopsFor);

struct Room {
  static constexpr common::RowWork work = {
      .vector_ops = 11.5, .row_ops = 40, .short_ops = 2.4, .long_rows = common::Prefetch::into_l2};
  static constexpr bool groups = true;
  static common::NormLoops loops(std::int64_t target, DType type, bool summed) {
    return ROOFLANE_HWY_FUNCTION(LoopsFor, target)(type, summed);
  }
};
using Op = common::NormOp<Room>;

}  // namespace

const Variant hwy = common::hwy_variant<Op, &kernel, &hwy>(ladder);

}  // namespace rooflane::layernorm
#endif  // HWY_ONCE
