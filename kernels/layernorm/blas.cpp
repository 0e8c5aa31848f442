// LayerNorm from level-1 BLAS: mean = cblas_sdot with ones, centring = cblas_scopy and cblas_saxpy
// of ones, variance = cblas_sdot of the centred row with itself, scaling = cblas_sscal, beta =
// cblas_saxpy. If the squares of a row leave float32, the row is multiplied by a power of two
// first. BLAS has no element-wise product: gamma is a plain loop. Rows are shared among threads
// here, each calling a single-threaded BLAS.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "generated_catalogue.hpp"
#include "kernels/common/blas_rows.hpp"
#include "kernels/common/norms.hpp"
#include "kernels/common/residual.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm {
namespace {

// Elements per BLAS call: keeps float32 sums short (their total is in double), keeps the row in L1
// from call to call, and fits int.
constexpr std::int64_t chunk = 4096;

class BlasRow {
 public:
  BlasRow(const Problem& problem, const cblas::Library& library)
      : cols_(problem.size("cols")),
        eps_(problem.value("eps")),
        library_(&library),
        ones_(static_cast<std::size_t>(std::min(chunk, cols_)), 1.0f) {}

  void bind(const Operands& operands) { io_ = LayerNormOperands(operands); }
  std::size_t workspace_bytes() const { return ones_.size() * sizeof(float); }
  void row(std::int64_t i) const { run_row(io_.x + i * io_.x_stride, io_.y + i * io_.y_stride); }

 private:
  void run_row(const float* x, float* y) const {
    // In place, what a first trial lost would be lost.
    float factor = x == y ? factor_of(x) : 1;
    double squares = centre(x, y, factor);
    if (x != y && !common::squares_hold(squares, static_cast<double>(cols_), eps_)) {
      factor = factor_of(x);
      squares = centre(x, y, factor);
    }
    const double eps = eps_ * factor * factor;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(cols_) + eps);
    // Beside the least eps, all distances of a row scaled down are zero.
    const double most = std::numeric_limits<float>::max();
    const auto scale =
        static_cast<float>(std::isfinite(inverse) ? std::min(inverse, most) : inverse);
    if (std::isnan(scale)) {
      // OpenBLAS 0.3.21 takes a factor of NaN for zero.
      std::fill_n(y, cols_, scale);
      return;
    }
    for (std::int64_t j = 0; j < cols_; j += chunk) {
      const int n = length(j);
      library_->sscal(n, scale, y + j, 1);
      for (std::int64_t i = j; i < j + n; ++i) y[i] *= io_.gamma[i];
      library_->saxpy(n, 1, io_.beta + j, 1, y + j, 1);
    }
  }

  // A power of two, times which the sums of a row and of its squares stay in float32; 1 where they
  // do without.
  float factor_of(const float* x) const {
    float most = 0;
    for (std::int64_t j = 0; j < cols_; ++j) most = std::max(most, std::abs(x[j]));
    const bool moderate = most > 0x1p-50F && most < 0x1p40F;
    if (moderate || most == 0 || !std::isfinite(most)) return 1;
    return std::ldexp(1.0F, -std::clamp(std::ilogb(most), -126, 126));
  }

  double sum_of(const float* row) const {
    double sum = 0;
    for (std::int64_t j = 0; j < cols_; j += chunk) {
      sum += library_->sdot(length(j), row + j, 1, ones_.data(), 1);
    }
    return sum;
  }

  // y = from - mean; returns the sum of its squares.
  double subtract(const float* from, float mean, float* y) const {
    double squares = 0;
    for (std::int64_t j = 0; j < cols_; j += chunk) {
      const int n = length(j);
      if (from != y) library_->scopy(n, from + j, 1, y + j, 1);
      library_->saxpy(n, -mean, ones_.data(), 1, y + j, 1);
      squares += library_->sdot(n, y + j, 1, y + j, 1);
    }
    return squares;
  }

  // y = x · factor less its mean; returns the sum of its squares.
  double centre(const float* x, float* y, float factor) const {
    if (factor != 1) {
      for (std::int64_t j = 0; j < cols_; j += chunk) {
        if (x != y) library_->scopy(length(j), x + j, 1, y + j, 1);
        library_->sscal(length(j), factor, y + j, 1);
      }
      x = y;
    }
    const auto count = static_cast<double>(cols_);
    const double mean = sum_of(x) / count;
    const double squares = subtract(x, static_cast<float>(mean), y);
    // A float32 sum of elements far from zero: what its rounding left in y is a mean as well.
    if (!(mean * mean * count > 16 * squares)) return squares;
    return subtract(y, static_cast<float>(sum_of(y) / count), y);
  }

  int length(std::int64_t begin) const { return static_cast<int>(std::min(chunk, cols_ - begin)); }

  std::int64_t cols_;
  double eps_;
  const cblas::Library* library_;
  std::vector<float> ones_;
  LayerNormOperands io_;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = common::residual_refusal(problem)) return reason;
  return cblas::unsupported_anywhere(problem, env);
}

}  // namespace

const Variant blas = common::blas_variant<BlasRow>(kernel, unsupported);

}  // namespace rooflane::layernorm
