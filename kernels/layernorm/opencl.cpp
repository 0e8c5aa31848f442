// LayerNorm, variant `opencl`: kernels/common/opencl_norm.hpp.
#include "kernels/common/opencl_norm.hpp"

#include "generated_catalogue.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {

const Variant opencl = common::opencl_row_variant<opencl, common::norm_plan>(
    kernel, common::norm_unsupported, opencl_ladder);

}  // namespace rooflane::layernorm
