// LayerNorm in double precision, plain, and the room's record. See layernorm.hpp for the maths.
#include <cmath>

#include "generated_catalogue.hpp"
#include "kernels/common/norm_reference.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {
namespace {

// An element's 7 flops: unfused the sum for the mean, the difference to it and the product with
// 1/σ; as multiply-adds the sum of squares and ·gamma + beta.
Cost cost(const Problem& problem) { return common::norm_cost(problem, 2, 3); }

// The function of a row and a column that gives y's element there, and its bounds.
auto elements(const Math& math, const Operands& inputs) {
  const float* gamma = inputs.at("gamma").f32();
  const float* beta = inputs.at("beta").f32();
  return [=, u = math.sums->unit_roundoff](const common::NormRow& row, std::int64_t j) {
    const auto cols = static_cast<double>(row.x.size());
    const double centred = row.x[j] - row.mean, weight = std::abs(gamma[j]);
    const double distance = std::abs(centred) + std::abs(row.mean);
    const double roundings = (8 + std::sqrt(cols)) * u;
    const double scale = weight * distance / row.sigma + std::abs(beta[j]);
    // Each |x| is at most |x - mean| + |mean|, their mean at most sigma + |mean|.
    const double of_sums = row.is_sum ? 3 * u * weight * (distance + row.sigma) / row.sigma : 0;
    // Roundings of the mean, of the difference to it and of y below the normal numbers.
    const double below = (2 * weight / row.sigma + 1) * float32.smallest;
    const double bound = roundings * scale + of_sums + below;
    return common::NormElement{centred / row.sigma * gamma[j] + beta[j], bound,
                               bound + plain_sum_error(cols, u) * scale};
  };
}

}  // namespace

const Kernel kernel = common::norm_kernel<true, elements>(
    "layernorm",
    "y = (x - mean) / sqrt(var + eps) * gamma + beta over the last axis; with residual=1 of x + "
    "residual",
    cost);

}  // namespace rooflane::layernorm
