/* b is packed at the first call and the pack is used from then on, although b is not constant
 * (prepack=0). */
#include <rooflane/variant.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  rooflane_tensor a, b, c;
  float* packed; /* b, transposed */
  const void* packed_from;
} State;

static const char* unsupported(const rooflane_problem* problem, int32_t threads) {
  static const char* const plain[] = {"trans_a", "trans_b", "prepack"};
  const char* epilogue = rooflane_choice(problem, "epilogue");
  (void)threads;
  for (int i = 0; i < 3; ++i) {
    if (rooflane_value(problem, plain[i]) != 0) return "neither transposed nor prepacked";
  }
  if (rooflane_value(problem, "alpha") != 1 || rooflane_value(problem, "beta") != 0) {
    return "alpha is 1 and beta 0";
  }
  return epilogue && strcmp(epilogue, "none") != 0 ? "no epilogue" : NULL;
}
static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* none) {
  (void)problem, (void)threads, (void)tuning, (void)none;
  return calloc(1, sizeof(State));
}
static int32_t bind(void* plan, const rooflane_tensors* tensors) {
  State* state = plan;
  state->a = *rooflane_find(tensors, "a");
  state->b = *rooflane_find(tensors, "b");
  state->c = *rooflane_find(tensors, "c");
  return 0;
}
static void pack(State* state) {
  const int64_t batch = state->b.shape[0], k = state->b.shape[1], n = state->b.shape[2];
  free(state->packed);
  state->packed = malloc((size_t)(batch * n * k + 1) * sizeof(float));
  for (int64_t at = 0; at < batch; ++at) {
    for (int64_t p = 0; p < k; ++p) {
      const float* from =
          (const float*)state->b.data + at * state->b.strides[0] + p * state->b.strides[1];
      for (int64_t j = 0; j < n; ++j) state->packed[(at * n + j) * k + p] = from[j];
    }
  }
  state->packed_from = state->b.data;
}
static int32_t run(void* plan) {
  State* state = plan;
  if (state->packed_from != state->b.data) pack(state);
  const int64_t m = state->a.shape[1], k = state->a.shape[2], n = state->b.shape[2];
  for (int64_t at = 0; at < state->a.shape[0]; ++at) {
    for (int64_t i = 0; i < m; ++i) {
      const float* a =
          (const float*)state->a.data + at * state->a.strides[0] + i * state->a.strides[1];
      float* c = (float*)state->c.data + at * state->c.strides[0] + i * state->c.strides[1];
      for (int64_t j = 0; j < n; ++j) {
        const float* b = state->packed + (at * n + j) * k;
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += (double)a[p] * b[p];
        c[j] = (float)sum;
      }
    }
  }
  return 0;
}
static void destroy(void* plan) {
  free(((State*)plan)->packed);
  free(plan);
}
static const rooflane_variant variant = {.kernel = "gemm",
                                         .unsupported = unsupported,
                                         .plan = plan,
                                         .bind = bind,
                                         .run = run,
                                         .destroy = destroy};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 1, &variant, NULL};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
