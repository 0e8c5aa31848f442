#include <math.h>
#include <stdint.h>

// y = gamma * (x - mean) / sqrt(variance + eps) + beta, row by row; sums in double.
void layernorm(const float* x, const float* gamma, const float* beta, float* y, int64_t rows,
               int64_t cols, float eps) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < cols; ++i) mean += in[i];
    mean /= (double)cols;
    for (int64_t i = 0; i < cols; ++i) variance += (in[i] - mean) * (in[i] - mean);
    variance /= (double)cols;
    const double scale = 1 / sqrt(variance + eps);
    for (int64_t i = 0; i < cols; ++i)
      out[i] = (float)(gamma[i] * ((in[i] - mean) * scale) + beta[i]);
  }
}
