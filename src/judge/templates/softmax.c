#include <math.h>
#include <stdint.h>

// y[r] = exp(x[r] - max) / sum, row by row.
void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) {
      if (in[i] > most || isnan(in[i])) most = in[i];
    }
    for (int64_t i = 0; i < cols; ++i) sum += out[i] = expf(in[i] - most);
    for (int64_t i = 0; i < cols; ++i) out[i] = (float)(out[i] / sum);
  }
}
