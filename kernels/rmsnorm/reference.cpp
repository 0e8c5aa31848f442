// RMSNorm in double precision, plain, and the room's record. See rmsnorm.hpp for the maths.
#include <cmath>

#include "generated_catalogue.hpp"
#include "kernels/common/norm_reference.hpp"
#include "kernels/rmsnorm/rmsnorm.hpp"

namespace rooflane::rmsnorm {
namespace {

constexpr double smallest_normal = 0x1p-126;

// An element's 4 flops: the sum of squares as multiply-adds, two products.
Cost cost(const Problem& problem) { return common::norm_cost(problem, 1, 2); }

// The function of a row and a column that gives y's element there, and its bounds. With a residual
// every x is a sum rounded once, which moves the element and the root.
auto elements(const Math& math, const Operands& inputs) {
  const float* gamma = inputs.at("gamma").f32();
  return [=, u = math.sums->unit_roundoff](const common::NormRow& row, std::int64_t j) {
    const auto cols = static_cast<double>(row.x.size());
    const double value = row.x[j] / row.sigma * gamma[j], size = std::abs(value);
    const double bound = (8 + std::sqrt(cols) + (row.is_sum ? 2 : 0)) * u * size + smallest_normal;
    return common::NormElement{value, bound, bound + plain_sum_error(cols, u) * size};
  };
}

}  // namespace

const Kernel kernel = common::norm_kernel<false, elements>(
    "rmsnorm",
    "y = x / sqrt(mean(x * x) + eps) * gamma over the last axis; with residual=1 of x + residual",
    cost);

}  // namespace rooflane::rmsnorm
