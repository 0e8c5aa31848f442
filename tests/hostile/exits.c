/* Ends its process with status 0 in the middle of a call, with whatever runs at exit. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

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
  static int calls;
  naive(x, y, rows, cols);
  if (++calls == 3) exit(0);
}
