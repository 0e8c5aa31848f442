/* Four rows of c at a time, so that a row of b is loaded once for them; the compiler vectorises
 * along n. */
#include <stdint.h>
#include <string.h>

static void rows_of(int64_t count, const float* a, const float* b, float* c, int64_t n, int64_t k) {
  memset(c, 0, (size_t)(count * n) * sizeof(float));
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < count; ++i) {
      const float factor = a[i * k + p];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += factor * b[p * n + j];
    }
  }
}

void gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  int64_t i = 0;
  for (; i + 4 <= m; i += 4) rows_of(4, a + i * k, b, c + i * n, n, k);
  rows_of(m - i, a + i * k, b, c + i * n, n, k);
}
