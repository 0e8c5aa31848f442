/* Multiplies two matrices of one's own through the C interface of the installed library.
 * cc main.c -o example $(pkg-config --cflags --libs rooflane) */
#include <math.h>
#include <rooflane/rooflane.h>
#include <stdio.h>

enum { m = 64, n = 48, k = 32 };

static float a[m * k], b[k * n], c[m * n];

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, rooflane_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (rooflane_abi() != ROOFLANE_ABI) return fail("another version of the library");

  /* What to compute: c = a*b with a [m,k], b [k,n], c [m,n]. */
  rooflane_parsed* problem = rooflane_parse("gemm:m=64,n=48,k=32");
  if (problem == NULL) return fail("parse");

  /* Planning once: two threads; the schedule is the machine's tuned one, else the model's. */
  rooflane_options options;
  rooflane_options_init(&options);
  options.variant = argc > 1 ? argv[1] : "hwy";
  options.threads = 2;
  rooflane_plan* plan = rooflane_plan_create(problem, &options, NULL, 0);
  if (plan == NULL) return fail("plan");

  /* Binding our own memory; gemm's tensors have a batch axis in front. */
  for (int i = 0; i < m * k; ++i) a[i] = 2.0f;
  for (int i = 0; i < k * n; ++i) b[i] = 0.25f;
  const rooflane_array arrays[] = {{.name = "a", .data = a, .rank = 3, .shape = {1, m, k}},
                                   {.name = "b", .data = b, .rank = 3, .shape = {1, k, n}},
                                   {.name = "c", .data = c, .rank = 3, .shape = {1, m, n}}};
  if (rooflane_plan_bind(plan, arrays, 3) != ROOFLANE_OK) return fail("bind");

  /* Running, as often as one likes. */
  if (rooflane_plan_run(plan) != ROOFLANE_OK) return fail("run");
  for (int i = 0; i < m * n; ++i) {
    if (fabsf(c[i] - 0.5f * k) > 1e-4f) {
      fprintf(stderr, "c[%d] = %g, want %g\n", i, c[i], 0.5 * k);
      return 1;
    }
  }
  printf("%s, %s: c[0] = %g\n", options.variant, rooflane_plan_fact(plan, "isa"), c[0]);
  rooflane_plan_destroy(plan);
  rooflane_parsed_destroy(problem);
  return 0;
}
