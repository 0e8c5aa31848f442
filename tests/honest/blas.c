/* Leaves the work to the BLAS that it is linked with.
 * flags: -lopenblas */
#include <stdint.h>

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

void gemm(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  enum { ROW_MAJOR = 101, PLAIN = 111 };
  cblas_sgemm(ROW_MAJOR, PLAIN, PLAIN, (int)m, (int)n, (int)k, 1, a, (int)k, b, (int)n, 0, c,
              (int)n);
}
