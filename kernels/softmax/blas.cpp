// Softmax with what BLAS has: the sum is cblas_sasum (every exp is positive), the scaling
// cblas_sscal. What BLAS lacks is plain loops: the maximum, the subtraction and exp. Rows are
// shared among threads here, each calling a single-threaded BLAS.
#include <algorithm>
#include <cmath>
#include <limits>

#include "generated_catalogue.hpp"
#include "kernels/common/blas_rows.hpp"
#include "kernels/softmax/softmax.hpp"

namespace rooflane::softmax {
namespace {

// Elements per cblas_sasum: a float32 sum of equal terms may drift one way at every addition, half
// of u on average, and the bound leaves 8 u. OpenBLAS 0.3.21 at its core type Cooperlake adds in
// one lane (512 elements at once failed there), hence 16; their total is in double.
constexpr std::int64_t sum_chunk = 16;
// Elements per cblas_sscal: fits int.
constexpr std::int64_t scale_chunk = std::int64_t{1} << 30;

class BlasRow {
 public:
  BlasRow(const Problem& problem, const cblas::Library& library)
      : cols_(problem.size("cols")), library_(&library) {}

  void bind(const Operands& operands) { io_ = common::RowOperands(operands); }
  std::size_t workspace_bytes() const { return 0; }
  void row(std::int64_t i) const { run_row(io_.x + i * io_.x_stride, io_.y + i * io_.y_stride); }

 private:
  void run_row(const float* x, float* y) const {
    float max = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < cols_; ++j) max = x[j] > max ? x[j] : max;
    for (std::int64_t j = 0; j < cols_; ++j) y[j] = std::exp(x[j] - max);
    double sum = 0;
    for (std::int64_t j = 0; j < cols_; j += sum_chunk) {
      sum += library_->sasum(length(j, sum_chunk), y + j, 1);
    }
    const auto scale = static_cast<float>(1 / sum);
    if (std::isnan(scale)) {
      // OpenBLAS 0.3.21 takes a factor of NaN for zero.
      std::fill_n(y, cols_, scale);
      return;
    }
    for (std::int64_t j = 0; j < cols_; j += scale_chunk) {
      library_->sscal(length(j, scale_chunk), scale, y + j, 1);
    }
  }

  int length(std::int64_t begin, std::int64_t chunk) const {
    return static_cast<int>(std::min(chunk, cols_ - begin));
  }

  std::int64_t cols_;
  const cblas::Library* library_;
  common::RowOperands io_;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = option_refusal(problem)) return reason;
  return cblas::unsupported_anywhere(problem, env);
}

}  // namespace

const Variant blas = common::blas_variant<BlasRow>(kernel, unsupported);

}  // namespace rooflane::softmax
