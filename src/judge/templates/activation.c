#include <stdint.h>

// y = max(x, 0): the kind of the shape, relu; others ask for other code.
void activation(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows * cols; ++i) y[i] = x[i] < 0 ? 0 : x[i];
}
