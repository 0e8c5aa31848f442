/* Keeps state other than results: a table of powers of two that a constructor fills, and scratch
 * memory that grows with the longest row. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { PARTS = 1024 };
static double power[PARTS]; /* 2^(i / PARTS) */

__attribute__((constructor)) static void fill(void) {
  for (int i = 0; i < PARTS; ++i) power[i] = exp2((double)i / PARTS);
}

static double fast_exp(double x) {
  const double scaled = x * (1.4426950408889634 * PARTS);
  const double nearest = floor(scaled);
  const int64_t n = (int64_t)nearest;
  const double rest = (scaled - nearest) * (0.69314718055994531 / PARTS);
  return ldexp(power[n & (PARTS - 1)], (int)(n >> 10)) * (1 + rest * (1 + rest / 2));
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static double* scratch;
  static int64_t longest;
  if (cols > longest) {
    free(scratch);
    scratch = malloc((size_t)cols * sizeof(double));
    longest = cols;
  }
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmax(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) {
      const double far = x[i] - most;
      sum += scratch[i] = far > -700 ? fast_exp(far) : exp(far);
    }
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(scratch[i] / sum);
  }
}
