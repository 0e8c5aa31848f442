#include <math.h>
#include <stdint.h>

// y = x Φ(x), the kind gelu; others ask for other code. erfc keeps the digits where x is negative.
void activation(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows * cols; ++i) {
    y[i] = (float)(0.5 * x[i] * erfc(-0.70710678118654752 * x[i]));
  }
}
