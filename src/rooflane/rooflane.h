/* Rooflane's kernels from C99, and from any language that calls C: list kernels and variants,
 * parse a problem, plan it, bind memory, run. A whole program is in examples/c/main.c; the C++
 * interface behind it is rooflane.hpp, what kernels compute docs/variants.md. Implemented in
 * src/c_api/rooflane.cpp.
 *
 * Errors: functions that return int return a rooflane_status; those that return a pointer return
 * NULL. What went wrong rooflane_last_error() says in words, with the argument and what is allowed.
 * The library prints nothing and never ends the process. Threads: every function may be called from
 * any thread at any time, on different objects. One plan serves one thread at a time; different
 * plans run at once. A parsed problem is read only. Text that is returned stays valid for the
 * library's life, unless said otherwise. Stability: ROOFLANE_ABI grows by one when a function or a
 * field changes or goes; new functions, and new fields at the end of rooflane_options, leave it as
 * it is. */
#ifndef ROOFLANE_H
#define ROOFLANE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ROOFLANE_ABI 1u

#if defined(__GNUC__)
#define ROOFLANE_API __attribute__((visibility("default")))
#else
#define ROOFLANE_API
#endif

typedef enum {
  ROOFLANE_OK = 0,
  ROOFLANE_FAILED = 1,     /* out of memory, a device that broke */
  ROOFLANE_ARGUMENT = 2,   /* the text or content of an argument is wrong */
  ROOFLANE_UNAVAILABLE = 3 /* valid, but this machine, build or variant cannot serve it */
} rooflane_status;

/* ROOFLANE_ABI of the library that was loaded: compare it with the header's before anything else.
 */
ROOFLANE_API uint32_t rooflane_abi(void);
ROOFLANE_API const char* rooflane_version(void); /* for example "0.1.0" */

/* Why the calling thread's last call that failed did; "" when none has. Valid until its next one
 * that fails. */
ROOFLANE_API const char* rooflane_last_error(void);

/* What there is. Indices count from 0; NULL beyond the end. */
ROOFLANE_API const char* rooflane_kernel_name(size_t index);
ROOFLANE_API const char* rooflane_variant_name(const char* kernel, size_t index);
/* Why this machine or build lacks a variant, in the calling thread's next last error; opens the
 * library or the drivers that it needs. */
ROOFLANE_API int rooflane_variant_status(const char* kernel, const char* variant);

/* A problem, "gemm:m=512,n=512,k=512,trans_b=1": its kernel with every parameter. */
typedef struct rooflane_parsed rooflane_parsed;
ROOFLANE_API rooflane_parsed* rooflane_parse(const char* problem);
ROOFLANE_API void rooflane_parsed_destroy(rooflane_parsed* parsed); /* NULL: nothing */
/* In its one printed form; valid as long as the problem. */
ROOFLANE_API const char* rooflane_parsed_text(const rooflane_parsed* parsed);

typedef enum {
  ROOFLANE_INPUT = 0,
  ROOFLANE_CONSTANT = 1, /* an input that planning takes (prepack=1: b) */
  ROOFLANE_OUTPUT = 2,
  ROOFLANE_UPDATED = 3 /* read and written */
} rooflane_role;

/* A tensor in the form that the problem needs, row-major. */
typedef struct {
  const char* name;
  const char* dtype; /* "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", or a
                        quantised format's: "q8_0", "q4_0", "q4_1", "int8_per_channel" */
  int32_t role;      /* a rooflane_role */
  int32_t rank;      /* 1 to 4 */
  int64_t shape[4];
  int64_t bytes; /* without gaps */
} rooflane_tensor_info;
/* ROOFLANE_ARGUMENT beyond the last tensor. Its text is valid as long as the problem. */
ROOFLANE_API int rooflane_parsed_tensor(const rooflane_parsed* parsed, size_t index,
                                        rooflane_tensor_info* info);

/* What any implementation must do: floating-point operations, and bytes of each operand once. */
ROOFLANE_API int rooflane_parsed_cost(const rooflane_parsed* parsed, double* flops, double* bytes);

/* Memory for a tensor. The last axis is contiguous; strides of the others are in elements, and
 * all-zero strides stand for an array without gaps. dtype NULL: the problem's. */
typedef struct {
  const char* name;
  void* data; /* of inputs never written */
  const char* dtype;
  int32_t rank;
  int64_t shape[4];
  int64_t strides[4];
} rooflane_array;

typedef struct {
  size_t size;         /* of this struct as the caller knows it: rooflane_options_init sets it */
  const char* variant; /* NULL: "hwy" */
  const char* tuning;  /* "mc=96,kc=384"; NULL: the machine's tuned schedule, else the model's */
  int32_t threads;     /* 1 by default */
  int32_t device;      /* of a variant for devices */
  const char* math;    /* NULL: the problem's usual one: "fp32", of integers "int8" */
  const char* isa;     /* Highway target, "AVX3"; NULL: the best of this CPU */
  const char* library; /* path of a CBLAS library for `blas`; NULL: the default search */
} rooflane_options;
ROOFLANE_API void rooflane_options_init(rooflane_options* options);

/* A variant made ready for a problem: schedule chosen, memory allocated, constants packed.
 * `constants` (NULL where there are none): every tensor with role ROOFLANE_CONSTANT is read,
 * during this call only. `options` NULL: the defaults. */
typedef struct rooflane_plan rooflane_plan;
ROOFLANE_API rooflane_plan* rooflane_plan_create(const rooflane_parsed* parsed,
                                                 const rooflane_options* options,
                                                 const rooflane_array* constants, size_t count);
ROOFLANE_API void rooflane_plan_destroy(rooflane_plan* plan); /* NULL: nothing */

/* Addresses of inputs and outputs, for every tensor except constants; may be called again.
 * Outputs overlap nothing, but kernels over rows may be given y == x. The memory stays the
 * caller's. */
ROOFLANE_API int rooflane_plan_bind(rooflane_plan* plan, const rooflane_array* arrays,
                                    size_t count);

/* Computes, and returns when it is done; allocates nothing. Devices: inputs are uploaded before and
 * outputs downloaded after, unless the caller does it with the two functions below and calls
 * rooflane_plan_run_only. On a CPU those three differ in nothing. */
ROOFLANE_API int rooflane_plan_run(rooflane_plan* plan);
ROOFLANE_API int rooflane_plan_upload(rooflane_plan* plan);
ROOFLANE_API int rooflane_plan_run_only(rooflane_plan* plan);
ROOFLANE_API int rooflane_plan_download(rooflane_plan* plan);

/* Facts of a plan: "isa", "library", "device", "driver", "path", "tuning", "workspace_bytes",
 * "packed_bytes" (the CSV's columns of these names). "" where it does not apply, NULL for
 * another name. Valid until the calling thread asks again. */
ROOFLANE_API const char* rooflane_plan_fact(const rooflane_plan* plan, const char* name);

#ifdef __cplusplus
}
#endif

#endif
