// RMSNorm, variant `opencl`: kernels/common/opencl_norm.hpp.
#include "kernels/common/opencl_norm.hpp"

#include "generated_catalogue.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

namespace rooflane::rmsnorm {

const Variant opencl =
    common::opencl_row_variant<opencl, common::norm_plan>(kernel, common::norm_unsupported);

}  // namespace rooflane::rmsnorm
