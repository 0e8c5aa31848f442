/* An OpenCL driver that aborts while the loader opens it. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void start(void) {
  fputs("broken_icd: no such luck\n", stderr);
  abort();
}
