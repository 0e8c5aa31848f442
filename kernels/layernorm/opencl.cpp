// LayerNorm, variant `opencl`: kernels/common/opencl_norm.hpp.
#include "kernels/common/opencl_norm.hpp"

#include "generated_catalogue.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {

const Variant opencl = common::norm_variant<opencl>(kernel, opencl_ladder);

}  // namespace rooflane::layernorm
