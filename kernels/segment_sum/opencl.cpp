// Sum by segment, variant `opencl`: kernels/common/opencl_segments.hpp.
#include "kernels/common/opencl_segments.hpp"

#include "generated_catalogue.hpp"
#include "kernels/segment_sum/segment_sum.hpp"

namespace rooflane::segment_sum {

const Variant opencl = common::segment_variant<opencl>(kernel, operand_types);

}  // namespace rooflane::segment_sum
