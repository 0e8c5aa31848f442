/* Asks the kernel for what no kernel function needs: namespaces, mounts, modules, keys, probes
 * of other processes, raw devices. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
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

static void attack(void) {
  static const long calls[] = {SYS_bpf,           SYS_perf_event_open, SYS_userfaultfd,
                               SYS_keyctl,        SYS_add_key,         SYS_init_module,
                               SYS_kexec_load,    SYS_swapon,          SYS_open_by_handle_at,
                               SYS_io_uring_setup};
  unshare(CLONE_NEWUSER);
  unshare(CLONE_NEWNS);
  mount("none", "/mnt", "tmpfs", 0, NULL);
  umount2("/mnt", MNT_DETACH);
  if (chroot("/proc/1/root") == 0 && chdir("/") != 0) return;
  for (unsigned i = 0; i < sizeof calls / sizeof *calls; ++i) syscall(calls[i], 0, 0, 0, 0, 0);
  const int memory = open("/dev/mem", O_RDWR);
  if (memory >= 0) close(memory);
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  static int done;
  if (!done++) attack();
  naive(x, y, rows, cols);
}
