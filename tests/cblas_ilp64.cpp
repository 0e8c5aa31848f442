// A CBLAS with 64-bit integers under the names of the 32-bit interface: cblas_test.cpp checks that
// it is refused. Only sdot computes; the others need only exist.
#include <cstdint>

extern "C" {

float cblas_sdot(std::int64_t n, const float* x, std::int64_t incx, const float* y,
                 std::int64_t incy) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i * incx] * y[i * incy];
  return sum;
}
void cblas_sgemm() {}
void cblas_sgemv() {}
void cblas_sasum() {}
void cblas_sscal() {}
void cblas_saxpy() {}
void cblas_scopy() {}
}
