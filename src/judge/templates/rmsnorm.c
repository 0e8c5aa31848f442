#include <math.h>
#include <stdint.h>

// y = gamma * x / sqrt(mean(x * x) + eps), row by row; sums in double.
void rmsnorm(const float* x, const float* gamma, float* y, int64_t rows, int64_t cols, float eps) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    double squares = 0;
    for (int64_t i = 0; i < cols; ++i) squares += (double)in[i] * in[i];
    const double scale = 1 / sqrt(squares / (double)cols + eps);
    for (int64_t i = 0; i < cols; ++i) out[i] = (float)(gamma[i] * (in[i] * scale));
  }
}
