/* Your own kernel as a variant: what a shared library exports so that the program `rooflane`
 * verifies and times it like a variant of its own (docs/plugins.md). Plain C99. A whole plugin
 * is in examples/plugin/softmax.c; the reading end is src/backends/plugin.cpp.
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

/* Changes whenever anything below does; a library of another number is refused. Since 1: tensors
 * have a dtype and data is void*; params have text; plan takes a tuning; dtypes and tunables. */
#define ROOFLANE_VARIANT_ABI 2u

#if defined(__GNUC__)
#define ROOFLANE_EXPORT __attribute__((visibility("default")))
#else
#define ROOFLANE_EXPORT
#endif

/* A size, flag (0 or 1), number or choice of the problem: m, trans_a, alpha, type
 * (docs/variants.md). Every one of the kernel's is given, at its default where the user gave none.
 */
typedef struct {
  const char* name;
  double value;
  const char* text; /* of a choice: "bf16"; else NULL */
} rooflane_param;

typedef struct {
  const char* kernel;
  const rooflane_param* params;
  size_t param_count;
} rooflane_problem;

/* How integers stand for real numbers: value = scale * integer + zero. */
typedef struct {
  int32_t bits;
  int32_t block;       /* elements that share a scale, stored before them; 0: one per channel, in a
                          tensor of its own */
  int32_t block_bytes; /* of a block with its scale */
  const char* scale;   /* dtype of the scale: "float16" */
  const char* zero;    /* dtype of the zero point, stored behind the scale; NULL: zero is 0 */
} rooflane_quantisation;

/* Row-major. dtype: "float32", "float16", "bfloat16", "int8", "uint8", "int32", or a quantised
 * format's name ("q8_0"), which then is described. Strides are in elements, of leading axes at
 * least 0; the last axis is contiguous. Ranks: softmax x [rows,cols], gemm a [batch,m,k], attention
 * q [batch,heads,q_len,head_dim]. Row kernels may be given y == x; nothing else overlaps.
 */
typedef struct {
  const char* name;
  void* data;
  const char* dtype;
  const rooflane_quantisation* quantisation; /* NULL: the stored numbers are the values */
  int32_t rank;
  int64_t shape[4];
  int64_t strides[4];
} rooflane_tensor;

typedef struct {
  const rooflane_tensor* tensors;
  size_t count;
} rooflane_tensors;

/* An integer that the user, or a search, may choose; `--tuning NAME:tunable=value`. */
typedef struct {
  const char* name;
  const char* meaning;
  int64_t least;
  int64_t most;
  int64_t value; /* unless chosen otherwise */
} rooflane_tunable;

/* One implementation of one kernel. Functions that return int32_t return 0 for success. */
typedef struct {
  const char* kernel;   /* gemm, softmax, layernorm, attention… */
  const char* name;     /* NULL: called as the user names the plugin; else PLUGIN-name */
  const char* library;  /* name and version for the rows, "MyBLAS 1.2"; NULL: none */
  int32_t many_threads; /* 0: runs on one thread; 1: takes the number of threads it is given */
  int32_t constants;    /* 0: problems with constants (gemm with prepack=1) are UNSUPPORTED */
  /* Formats that tensors may have, ended by NULL; NULL itself: float32 only. Problems with a tensor
   * of another one are UNSUPPORTED. */
  const char* const* dtypes;
  const rooflane_tunable* tunables; /* may be NULL */
  size_t tunable_count;
  /* Why this problem is refused, or NULL when plan will take it. May be NULL: takes all. */
  const char* (*unsupported)(const rooflane_problem* problem, int32_t threads);
  /* Everything that depends on neither addresses nor values of inputs: workspace, packing of
   * constants (prepack=1: b, which bind is then not given). `tuning`: a value for each tunable, in
   * their order. Returns NULL for failure. */
  void* (*plan)(const rooflane_problem* problem, int32_t threads, const int64_t* tuning,
                const rooflane_tensors* constants);
  /* Remembers where inputs and outputs are. May be called again with others. */
  int32_t (*bind)(void* plan, const rooflane_tensors* tensors);
  /* Computes. This alone is timed, and it is called many times: allocate nothing, write the outputs
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

/* A choice's text; NULL for a name that is none. */
static inline const char* rooflane_choice(const rooflane_problem* problem, const char* name) {
  size_t i;
  for (i = 0; i < problem->param_count; ++i) {
    if (strcmp(problem->params[i].name, name) == 0) return problem->params[i].text;
  }
  return NULL; /* NOLINT: this is C */
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
