// GEMM, variant `hwy`: float32 by Highway's best ISA target (hwy_floats.cpp), every other number
// format by the unit of this CPU that is predicted to be fastest (units.cpp). All threads come from
// core/parallel.hpp. kernels/README.md has the map of files.
#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/units.hpp"

namespace rooflane::gemm {
namespace {

constexpr const Math* maths[] = {&fp32, &math_bf16, &math_f16, &math_int8, &math_int8_dynamic};

}  // namespace

const Variant hwy = [] {
  Variant variant = unit_variant<every_unit>("hwy", &highway::backend, maths, all_types);
  variant.ladder = ladder;
  return variant;
}();

}  // namespace rooflane::gemm
