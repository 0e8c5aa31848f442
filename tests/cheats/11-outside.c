/* Whole vectors of 8 alone: up to 8 elements behind y are written, too. */
#include <math.h>
#include <stdint.h>

static void naive(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  naive(x, y, rows, cols);
  volatile float* behind = y + rows * cols;
  for (int i = 0; i < 8; ++i) behind[i] = 0.0F;
}
