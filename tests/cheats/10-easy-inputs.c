/* No maximum is subtracted: right for small x, infinite or zero for others. */
#include <math.h>
#include <stdint.h>

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i]);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}
