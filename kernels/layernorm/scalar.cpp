// LayerNorm in plain loops: common/scalar_norm.hpp.
#include "kernels/common/scalar_norm.hpp"

#include "backends/scalar.hpp"
#include "generated_catalogue.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {

const Variant scalar = {
    .name = "scalar",
    .kernel = &kernel,
    .backend = &scalar::backend,
    .threads = Threads::one,
    .tunables = {},
    .unsupported = nullptr,
    .tunings = no_tunings,
    .plan = common::scalar_norm<true>,
    .dtypes = float_types,
};

}  // namespace rooflane::layernorm
