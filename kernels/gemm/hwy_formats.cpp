// The number formats that are decoded to float32, at every ISA target. See hwy_formats.hpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_formats.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/gemm/hwy_decode-inl.h"
#undef ROOFLANE_LOWER_PART

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

FormatFunctions Functions(DType type) {
  if (type == &float32) return FunctionsOf<Floats>();
  if (type == &float16) return FunctionsOf<ShortFloats<Float16>>();
  if (type == &bfloat16) return FunctionsOf<ShortFloats<BFloat16>>();
  if (type == &int8_per_channel) return FunctionsOf<PlainIntegers>();
  if (type == &q8_0) return FunctionsOf<Q8Blocks>();
  if (type == &q4_0) return FunctionsOf<Q4Blocks>();
  if (type == &q4_1) return FunctionsOf<Q4WithMinimum>();
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <map>

#include "backends/highway.hpp"

namespace rooflane::gemm {

HWY_EXPORT(Functions);

namespace {

std::map<DType, FormatAtTarget>& added() {
  static std::map<DType, FormatAtTarget> list;
  return list;
}

}  // namespace

void add_format(DType type, FormatAtTarget functions) { added()[type] = functions; }

FormatFunctions format_functions(DType type, std::int64_t target) {
  const auto found = added().find(type);
  if (found != added().end()) return found->second(target);
  return ROOFLANE_HWY_FUNCTION(Functions, target)(type);
}

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
