// RMSNorm, variant `opencl`: kernels/common/opencl_norm.hpp.
#include "kernels/common/opencl_norm.hpp"

#include "generated_catalogue.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

namespace rooflane::rmsnorm {

const Variant opencl = common::norm_variant<opencl>(kernel);

}  // namespace rooflane::rmsnorm
