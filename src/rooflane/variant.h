/* Your own kernel as a variant: what a shared library exports so that the program `rooflane`
 * verifies and times it like a variant of its own (docs/plugins.md). Plain C99. A whole plugin
 * stands in examples/plugin/softmax.c; the reading end is src/backends/plugin.cpp.
 *
 * The library is loaded in a worker process of its own; one thread calls its functions. All text
 * that it returns stays valid while it is loaded; what it is given is valid during the call only,
 * tensors' data from bind until the next bind or destroy. */
#ifndef ROOFLANE_VARIANT_H
#define ROOFLANE_VARIANT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever anything below does; a library of another number is refused. */
#define ROOFLANE_VARIANT_ABI 1u

#if defined(__GNUC__)
#define ROOFLANE_EXPORT __attribute__((visibility("default")))
#else
#define ROOFLANE_EXPORT
#endif

/* A size, flag (0 or 1) or number of the problem: m, trans_a, alpha (docs/variants.md). Every one
 * of the kernel's is given, at its default where the user gave none. */
typedef struct {
  const char* name;
  double value;
} rooflane_param;

typedef struct {
  const char* kernel;
  const rooflane_param* params;
  size_t param_count;
} rooflane_problem;

/* Row-major float32. Strides are in elements, of leading axes at least 0; the last axis is
 * contiguous. Ranks: softmax x [rows,cols], gemm a [batch,m,k], attention q
 * [batch,heads,q_len,head_dim]. softmax and layernorm may be given y == x; nothing else overlaps.
 */
typedef struct {
  const char* name;
  float* data;
  int32_t rank;
  int64_t shape[4];
  int64_t strides[4];
} rooflane_tensor;

typedef struct {
  const rooflane_tensor* tensors;
  size_t count;
} rooflane_tensors;

/* One implementation of one kernel. Functions that return int32_t return 0 for success. */
typedef struct {
  const char* kernel;   /* gemm, softmax, layernorm, attention */
  const char* name;     /* NULL: called as the user names the plugin; else PLUGIN-name */
  const char* library;  /* name and version for the rows, "MyBLAS 1.2"; NULL: none */
  int32_t many_threads; /* 0: runs on one thread; 1: takes the number of threads it is given */
  int32_t constants;    /* 0: problems with constants (gemm with prepack=1) are UNSUPPORTED */
  /* Why this problem is refused, or NULL when plan will take it. May be NULL: takes all. */
  const char* (*unsupported)(const rooflane_problem* problem, int32_t threads);
  /* Everything that depends on neither addresses nor values of inputs: workspace, packing of
   * constants (prepack=1: b, which bind is then not given). Returns NULL for failure. */
  void* (*plan)(const rooflane_problem* problem, int32_t threads,
                const rooflane_tensors* constants);
  /* Remembers where the inputs and the output are. May be called again with others. */
  int32_t (*bind)(void* plan, const rooflane_tensors* tensors);
  /* Computes. This alone is timed, and it is called many times: allocate nothing, write the output
   * and nothing else, keep no result. */
  int32_t (*run)(void* plan);
  void (*destroy)(void* plan);
} rooflane_variant;

typedef struct {
  uint32_t abi; /* ROOFLANE_VARIANT_ABI */
  uint32_t variant_count;
  const rooflane_variant* variants;
  /* What failed in the last call that did; may be NULL. */
  const char* (*last_error)(void);
} rooflane_plugin;

/* The one function that the library exports. */
ROOFLANE_EXPORT const rooflane_plugin* rooflane_describe(void);

/* A parameter's value; 0 for a name that the kernel does not have. */
static inline double rooflane_value(const rooflane_problem* problem, const char* name) {
  size_t i;
  for (i = 0; i < problem->param_count; ++i) {
    if (strcmp(problem->params[i].name, name) == 0) return problem->params[i].value;
  }
  return 0;
}

/* A tensor by its name; NULL when there is none of it. */
static inline const rooflane_tensor* rooflane_find(const rooflane_tensors* all, const char* name) {
  size_t i;
  for (i = 0; i < all->count; ++i) {
    if (strcmp(all->tensors[i].name, name) == 0) return &all->tensors[i];
  }
  return NULL; /* NOLINT: this is C */
}

#ifdef __cplusplus
}
#endif

#endif
