// A softmax of one's own for `rooflane bench --plugin mine=./softmax.so`.
// cc -O3 -shared -fPIC softmax.c -o softmax.so -lm
#include <math.h>
#include <rooflane/variant.h>
#include <stdlib.h>

typedef struct {
  rooflane_tensor x, y;
} Plan;

static void* plan(const rooflane_problem* problem, int32_t threads, const rooflane_tensors* none) {
  (void)problem, (void)threads, (void)none;
  return calloc(1, sizeof(Plan));
}

static int32_t bind(void* self, const rooflane_tensors* tensors) {
  *(Plan*)self = (Plan){*rooflane_find(tensors, "x"), *rooflane_find(tensors, "y")};
  return 0;
}

static int32_t run(void* self) {
  const Plan* p = self;
  const int64_t rows = p->x.shape[0], cols = p->x.shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = p->x.data + row * p->x.strides[0];
    float* y = p->y.data + row * p->y.strides[0];
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
  return 0;
}

static const rooflane_variant softmax = {
    .kernel = "softmax", .plan = plan, .bind = bind, .run = run, .destroy = free};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 1, &softmax, NULL};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
