// RMSNorm in plain loops: common/scalar_norm.hpp.
#include "kernels/common/scalar_norm.hpp"

#include "generated_catalogue.hpp"
#include "kernels/common/scalar_variant.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

namespace rooflane::rmsnorm {

const Variant scalar = common::scalar_variant(kernel, common::scalar_norm<false>, float_types);

}  // namespace rooflane::rmsnorm
