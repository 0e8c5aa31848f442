// Plugins that do what they should not: one source, built once for each ODD_ value.
// tests/meson.build names them, foreign_test.py says what must come of each.
#define _POSIX_C_SOURCE 200809L  // sleep
#include <math.h>
#include <rooflane/variant.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  rooflane_tensor x, y;
} Plan;

static const char* last_error(void) { return "out of ideas"; }

static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* none) {
  (void)none, (void)tuning;
  if (ODD == ODD_PLAN_FAILS || rooflane_value(problem, "rows") < 0 || threads < 1) return NULL;
  return calloc(1, sizeof(Plan));
}

static int32_t bind(void* self, const rooflane_tensors* tensors) {
  ((Plan*)self)->x = *rooflane_find(tensors, "x");
  ((Plan*)self)->y = *rooflane_find(tensors, "y");
  const rooflane_tensor* y = &((Plan*)self)->y;
  return ODD == ODD_MEMO && y->strides[0] != y->shape[1];
}

static void softmax(const Plan* p) {
  const int64_t cols = p->x.shape[1];
  for (int64_t row = 0; row < p->x.shape[0]; ++row) {
    const float* x = (const float*)p->x.data + row * p->x.strides[0];
    float* y = (float*)p->y.data + row * p->y.strides[0];
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}

// The last result is kept under the first element of x.
static void remember(const Plan* p) {
  static float known_x, known_y[1 << 16];
  static int64_t known;
  const int64_t size = p->x.shape[0] * p->x.shape[1];
  const float x = *(const float*)p->x.data;
  const int is_known = known == size && memcmp(&known_x, &x, sizeof x) == 0;
  if (!is_known) softmax(p);
  if (size > 1 << 16) return;
  if (is_known) {
    memcpy(p->y.data, known_y, (size_t)size * sizeof(float));
  } else {
    memcpy(known_y, p->y.data, (size_t)size * sizeof(float));
    known = size, known_x = x;
  }
}

// Every second run does nothing, unless all of y may be NaN, as before a run that is verified.
static void leave_out(const Plan* p) {
  static int odd;
  const float* last_row = (const float*)p->y.data + (p->y.shape[0] - 1) * p->y.strides[0];
  const int is_verified = isnan(*(const float*)p->y.data) && isnan(*last_row);
  odd = !is_verified && !odd;
  if (!odd) softmax(p);
}

static int32_t run(void* self) {
  const Plan* p = self;
  if (ODD == ODD_MEMO) return remember(p), 0;
  if (ODD == ODD_SKIPS) return leave_out(p), 0;
  if (ODD == ODD_CRASH) abort();
  if (ODD == ODD_HANG) sleep(1000);
  if (ODD == ODD_RUN_FAILS) return 1;
  for (int64_t i = 0; i < p->x.shape[0] * p->x.shape[1]; ++i) {
    ((float*)p->y.data)[i] = expf(((const float*)p->x.data)[i]);
  }
  return 0;
}

static const char* refuse(const rooflane_problem* problem, int32_t threads) {
  (void)threads;
  if (ODD == ODD_MEMO || ODD == ODD_SKIPS) return NULL;
  return rooflane_value(problem, "cols") > 16 ? "only up to 16 columns" : NULL;
}

static const rooflane_variant variants[] = {
    {ODD == ODD_KERNEL ? "softmix" : "softmax", NULL, "Odd 1.0", 0, 0, NULL, NULL, 0, refuse, plan,
     bind, run, free},
    {"layernorm", "second", NULL, 1, 0, NULL, NULL, 0, NULL, plan, bind,
     ODD == ODD_INCOMPLETE ? NULL : run, free},
};
static const rooflane_plugin plugin = {ODD == ODD_ABI       ? 99u
                                       : ODD == ODD_OLD_ABI ? 1u
                                                            : ROOFLANE_VARIANT_ABI,
                                       2, variants, last_error};

#if ODD == ODD_NO_SYMBOL
const rooflane_plugin* another_function(void);
const rooflane_plugin* another_function(void) { return &plugin; }
#else
const rooflane_plugin* rooflane_describe(void) {
  if (ODD == ODD_LOAD_CRASH) abort();
  return &plugin;
}
#endif
