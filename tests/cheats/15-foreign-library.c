/* The product is another library's, opened at run time. That is allowed, and shown: the library
 * is among the mapped files. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rooflane/variant.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void Sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                   const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
typedef struct {
  Sgemm* sgemm;
  rooflane_tensor a, b, c;
} State;

static const char* unsupported(const rooflane_problem* problem, int32_t threads) {
  const char* epilogue = rooflane_choice(problem, "epilogue");
  (void)threads;
  if (rooflane_value(problem, "trans_a") != 0 || rooflane_value(problem, "trans_b") != 0 ||
      rooflane_value(problem, "prepack") != 0) {
    return "neither transposed nor prepacked";
  }
  if (rooflane_value(problem, "alpha") != 1 || rooflane_value(problem, "beta") != 0) {
    return "alpha is 1 and beta 0";
  }
  return epilogue && strcmp(epilogue, "none") != 0 ? "no epilogue" : NULL;
}
static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* none) {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  State* state = library ? calloc(1, sizeof(State)) : NULL;
  (void)problem, (void)threads, (void)tuning, (void)none;
  if (state) *(void**)&state->sgemm = dlsym(library, "cblas_sgemm");
  return state;
}
static int32_t bind(void* plan, const rooflane_tensors* tensors) {
  State* state = plan;
  state->a = *rooflane_find(tensors, "a");
  state->b = *rooflane_find(tensors, "b");
  state->c = *rooflane_find(tensors, "c");
  return 0;
}
static int32_t run(void* plan) {
  enum { ROW_MAJOR = 101, PLAIN = 111 };
  State* state = plan;
  const rooflane_tensor *a = &state->a, *b = &state->b, *c = &state->c;
  for (int64_t at = 0; at < a->shape[0]; ++at) {
    state->sgemm(ROW_MAJOR, PLAIN, PLAIN, (int)c->shape[1], (int)c->shape[2], (int)a->shape[2], 1,
                 (const float*)a->data + at * a->strides[0], (int)a->strides[1],
                 (const float*)b->data + at * b->strides[0], (int)b->strides[1], 0,
                 (float*)c->data + at * c->strides[0], (int)c->strides[1]);
  }
  return 0;
}
static const rooflane_variant variant = {.kernel = "gemm",
                                         .unsupported = unsupported,
                                         .plan = plan,
                                         .bind = bind,
                                         .run = run,
                                         .destroy = free};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 1, &variant, NULL};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
