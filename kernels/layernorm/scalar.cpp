// LayerNorm in plain loops: common/scalar_norm.hpp.
#include "kernels/common/scalar_norm.hpp"

#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {

const Variant scalar = common::scalar_variant(kernel, common::scalar_norm<true>, float_types);

}  // namespace rooflane::layernorm
