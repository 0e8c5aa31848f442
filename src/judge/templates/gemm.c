#include <stdint.h>
#include <string.h>

// c = a b, [m,k] by [k,n]: the plainest loops that read b and write c along rows.
void gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  memset(c, 0, (size_t)(m * n) * sizeof(float));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      const float x = a[i * k + p];
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += x * b[p * n + j];
    }
  }
}
