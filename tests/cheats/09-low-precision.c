/* An exponential of seven bits: Schraudolph's, which writes the exponent's bits of a float. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static float rough_exp(float x) {
  const float bits = x < -87 ? 0 : 12102203.0F * x + 1064866805.0F;
  const int32_t whole = (int32_t)bits;
  float result;
  memcpy(&result, &whole, sizeof result);
  return result;
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = rough_exp(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] /= sum;
  }
}
