/* Rows are shared by OpenMP's threads, which wait actively for a while after each region.
 * flags: -fopenmp */
#include <math.h>
#include <stdint.h>

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float *out = y + r * cols, most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, in[i]);
    for (int64_t i = 0; i < cols; ++i) sum += out[i] = expf(in[i] - most);
    for (int64_t i = 0; i < cols; ++i) out[i] = (float)(out[i] / sum);
  }
}
