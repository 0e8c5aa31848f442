// A plugin that packs constants: c = a·b with b copied by plan when it is constant (prepack=1), and
// the same function as a variant that takes none. foreign_test.py uses it.
#include <rooflane/variant.h>
#include <stdlib.h>

typedef struct {
  int64_t n, k;
  float* packed;  // [k,n], or NULL
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

static void* plan(const rooflane_problem* problem, int32_t threads, const rooflane_tensors* given) {
  const rooflane_tensor* b = rooflane_find(given, "b");
  Plan* p = calloc(1, sizeof *p);
  (void)threads;
  p->n = (int64_t)rooflane_value(problem, "n");
  p->k = (int64_t)rooflane_value(problem, "k");
  if (b == NULL) return p;
  p->packed = malloc((size_t)(p->n * p->k + 1) * sizeof(float));
  for (int64_t i = 0; i < p->k; ++i) {
    const float* from = b->data + i * b->strides[1];
    memcpy(p->packed + i * p->n, from, (size_t)p->n * sizeof(float));
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
  const float* b = p->packed != NULL ? p->packed : p->b.data;
  const int64_t ldb = p->packed != NULL ? p->n : p->b.strides[1];
  for (int64_t i = 0; i < p->a.shape[1]; ++i) {
    for (int64_t j = 0; j < p->n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < p->k; ++l) {
        sum += (double)p->a.data[i * p->a.strides[1] + l] * b[l * ldb + j];
      }
      p->c.data[i * p->c.strides[1] + j] = (float)sum;
    }
  }
  return 0;
}

static void destroy(void* self) {
  free(((Plan*)self)->packed);
  free(self);
}

static const rooflane_variant variants[] = {
    {"gemm", NULL, NULL, 1, 1, unsupported, plan, bind, run, destroy},
    {"gemm", "unpacked", NULL, 1, 0, unsupported, plan, bind, run, destroy},
};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 2, variants, NULL};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
