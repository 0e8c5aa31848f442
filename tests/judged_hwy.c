/* Rooflane's own variant `hwy`, by its library: what is judged and what it is judged beside are one
 * kernel, so their times show what the jail does to one. Whoever judges it names the library:
 * scripts/judge_agreement.py. */
#include <rooflane/rooflane.h>
#include <rooflane/variant.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 12 };
static char error[512];

static void* fail(void) {
  snprintf(error, sizeof error, "%s", rooflane_last_error());
  return NULL;
}
static void* plan(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                  const rooflane_tensors* constants) {
  char text[1024];
  int used = snprintf(text, sizeof text, "%s", problem->kernel);
  (void)tuning, (void)constants;
  for (size_t i = 0; i < problem->param_count && used < (int)sizeof text; ++i) {
    const rooflane_param* param = &problem->params[i];
    /* Numbers of epilogues, which are refused where there is none. */
    if (strcmp(param->name, "slope") == 0 || strcmp(param->name, "low") == 0 ||
        strcmp(param->name, "high") == 0) {
      continue;
    }
    used +=
        snprintf(text + used, sizeof text - (size_t)used, "%c%s=", i == 0 ? ':' : ',', param->name);
    if (used >= (int)sizeof text) break;
    used += param->text ? snprintf(text + used, sizeof text - (size_t)used, "%s", param->text)
                        : snprintf(text + used, sizeof text - (size_t)used, "%.9g", param->value);
  }
  rooflane_options options;
  rooflane_options_init(&options);
  options.variant = "hwy";
  options.threads = threads;
  rooflane_parsed* parsed = rooflane_parse(text);
  if (!parsed) return fail();
  rooflane_plan* made = rooflane_plan_create(parsed, &options, NULL, 0);
  rooflane_parsed_destroy(parsed);
  return made ? made : fail();
}
static int32_t bind(void* plan, const rooflane_tensors* tensors) {
  rooflane_array arrays[MOST];
  for (size_t i = 0; i < tensors->count && i < MOST; ++i) {
    const rooflane_tensor* from = &tensors->tensors[i];
    arrays[i] = (rooflane_array){
        .name = from->name, .data = from->data, .dtype = from->dtype, .rank = from->rank};
    for (int axis = 0; axis < 4; ++axis) {
      arrays[i].shape[axis] = from->shape[axis];
      arrays[i].strides[axis] = from->strides[axis];
    }
  }
  if (rooflane_plan_bind(plan, arrays, tensors->count) == 0) return 0;
  fail();
  return 1;
}
static int32_t run(void* plan) { return rooflane_plan_run_only(plan); }
static void destroy(void* plan) { rooflane_plan_destroy(plan); }
static const char* last_error(void) { return error; }
static const char* const dtypes[] = {"float32", "bfloat16", "float16", NULL};
#define VARIANT(of)                                                                         \
  {                                                                                         \
    .kernel = of, .library = "Rooflane", .many_threads = 1, .dtypes = dtypes, .plan = plan, \
    .bind = bind, .run = run, .destroy = destroy                                            \
  }
static const rooflane_variant variants[] = {VARIANT("softmax"), VARIANT("gemm"),
                                            VARIANT("layernorm"), VARIANT("attention"),
                                            VARIANT("add")};
static const rooflane_plugin plugin = {ROOFLANE_VARIANT_ABI, 5, variants, last_error};
const rooflane_plugin* rooflane_describe(void) { return &plugin; }
