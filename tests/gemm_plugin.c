// A plugin that packs constants: c = a·b with b copied by plan when it is constant (prepack=1); the
// same function as a variant that takes none, and as one that takes bfloat16 and has a tunable.
// foreign_test.py uses it.
#include <rooflane/variant.h>
#include <stdlib.h>

typedef struct {
  int64_t n, k;
  int64_t double_it;  // the tunable
  float* packed;      // [k,n], or NULL
  rooflane_tensor a, b, c;
} Plan;

static const char* unsupported(const rooflane_problem* problem, int32_t threads) {
  const int plain = rooflane_value(problem, "alpha") == 1 && rooflane_value(problem, "beta") == 0 &&
                    rooflane_value(problem, "trans_a") == 0 &&
                    rooflane_value(problem, "trans_b") == 0 &&
                    rooflane_value(problem, "batch") == 1;
  if (threads > 2) return "two threads at most";
  return plain ? NULL : "only c = a*b";
}

static float value(const rooflane_tensor* tensor, int64_t at) {
  if (strcmp(tensor->dtype, "bfloat16") == 0) {
    const uint32_t bits = (uint32_t)((const uint16_t*)tensor->data)[at] << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
  }
  return ((const float*)tensor->data)[at];
}

static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* given) {
  const rooflane_tensor* b = rooflane_find(given, "b");
  Plan* p = calloc(1, sizeof *p);
  (void)threads;
  p->double_it = tuning[0];
  p->n = (int64_t)rooflane_value(problem, "n");
  p->k = (int64_t)rooflane_value(problem, "k");
  if (b == NULL) return p;
  p->packed = malloc((size_t)(p->n * p->k + 1) * sizeof(float));
  for (int64_t i = 0; i < p->k; ++i) {
    for (int64_t j = 0; j < p->n; ++j) p->packed[i * p->n + j] = value(b, i * b->strides[1] + j);
  }
  return p;
}

static int32_t bind(void* self, const rooflane_tensors* tensors) {
  Plan* p = self;
  const rooflane_tensor* b = rooflane_find(tensors, "b");
  if ((b == NULL) != (p->packed != NULL)) return 1;  // a constant is given once
  if (b != NULL) p->b = *b;
  p->a = *rooflane_find(tensors, "a");
  p->c = *rooflane_find(tensors, "c");
  return 0;
}

static int32_t run(void* self) {
  const Plan* p = self;
  for (int64_t i = 0; i < p->a.shape[1]; ++i) {
    for (int64_t j = 0; j < p->n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < p->k; ++l) {
        const float b =
            p->packed != NULL ? p->packed[l * p->n + j] : value(&p->b, l * p->b.strides[1] + j);
        sum += (double)value(&p->a, i * p->a.strides[1] + l) * b;
      }
      ((float*)p->c.data)[i * p->c.strides[1] + j] = (float)(p->double_it ? 2 * sum : sum);
    }
  }
  return 0;
}

static void destroy(void* self) {
  free(((Plan*)self)->packed);
  free(self);
}

static const char* const typed[] = {"float32", "bfloat16", NULL};
static const rooflane_tunable tunables[] = {{"double", "1: the result is wrong", 0, 1, 0}};
static const rooflane_variant variants[] = {
    {"gemm", NULL, NULL, 1, 1, NULL, tunables, 1, unsupported, plan, bind, run, destroy},
    {"gemm", "unpacked", NULL, 1, 0, NULL, tunables, 1, unsupported, plan, bind, run, destroy},
    {"gemm", "typed", NULL, 1, 0, typed, tunables, 1, unsupported, plan, bind, run, destroy},
};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 3, variants, NULL};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
