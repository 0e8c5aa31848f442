// A softmax of one's own, for `rooflane bench --plugin mine=./softmax.so`:
// cc -O3 -shared -fPIC softmax.c -o softmax.so -lm
#include <math.h>
#include <rooflane/variant.h>
#include <stdlib.h>

static const char* unsupported(const rooflane_problem* problem, int32_t threads) {
  const int plain = rooflane_value(problem, "scale") == 1 && rooflane_value(problem, "mask") == 0;
  return plain ? NULL : "no scale and no mask";
}
static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* none) {
  return calloc(2, sizeof(rooflane_tensor));  // what bind finds: x and y
}
static int32_t bind(void* plan, const rooflane_tensors* tensors) {
  ((rooflane_tensor*)plan)[0] = *rooflane_find(tensors, "x");
  ((rooflane_tensor*)plan)[1] = *rooflane_find(tensors, "y");
  return 0;
}
static int32_t run(void* plan) {  // this alone is timed
  const rooflane_tensor *x = plan, *y = x + 1;
  for (int64_t row = 0; row < x->shape[0]; ++row) {
    const float* in = (const float*)x->data + row * x->strides[0];
    float* out = (float*)y->data + row * y->strides[0];
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < x->shape[1]; ++i) most = fmaxf(most, in[i]);
    for (int64_t i = 0; i < x->shape[1]; ++i) sum += out[i] = expf(in[i] - most);
    for (int64_t i = 0; i < x->shape[1]; ++i) out[i] = (float)(out[i] / sum);
  }
  return 0;
}
static const rooflane_variant softmax = {.kernel = "softmax",
                                         .unsupported = unsupported,
                                         .plan = plan,
                                         .bind = bind,
                                         .run = run,
                                         .destroy = free};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 1, &softmax, NULL};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
