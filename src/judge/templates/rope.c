#include <math.h>
#include <stdint.h>

// Rotates the pairs (i, i + head_dim / 2) of each position by position * base^(-2 i / head_dim).
void rope(const float* x, float* y, int64_t batch, int64_t heads, int64_t len, int64_t head_dim,
          float base) {
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < batch * heads * len; ++row) {
    const float* in = x + row * head_dim;
    float* out = y + row * head_dim;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = (double)(row % len) * pow(base, -2.0 * (double)i / (double)head_dim);
      const double c = cos(angle), s = sin(angle);
      out[i] = (float)(in[i] * c - in[i + half] * s);
      out[i + half] = (float)(in[i + half] * c + in[i] * s);
    }
  }
}
