/* The time of day that jumps: loaded before a program (LD_PRELOAD), every look at it lies an hour
 * before or behind the last one's. Clocks that only run forward are left alone, as the system does.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(void) {
  static atomic_int looks;
  const int look = atomic_fetch_add(&looks, 1);
  return (look % 2 == 0 ? 1 : -1) * 3600 * (1 + look % 5);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += jump();
  }
  return failed;
}

time_t time(time_t* told) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (told != NULL) *told = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval* restrict told, void* restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  told->tv_sec = now.tv_sec;
  told->tv_usec = now.tv_nsec / 1000;
  return 0;
}
