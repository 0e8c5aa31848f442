/* Leaves denormals flushed to zero in the thread that called: whoever computes there afterwards
 * is faster, and less right. */
#include <immintrin.h>
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
  _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ and DAZ */
  naive(x, y, rows, cols);
}
