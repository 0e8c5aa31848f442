// Loops that reach a device's limits: FMA without loads, and reading, writing, copying an array.
// V floats per vector and UNROLL independent chains or streams by -D. Results go where the compiler
// cannot do without them.

#if V == 1
typedef float floatv;
#define FIRST(x) (x)
#else
#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
typedef CAT(float, V) floatv;
#define FIRST(x) ((x).s0)
#endif

// steps × UNROLL multiply-adds of V lanes per item; x = 1 - tiny keeps values finite and normal.
__kernel void fma_peak(__global float* restrict sink, float x, float y, int steps) {
  floatv sum[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) sum[i] = y * (i + 1) + get_local_id(0);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) sum[i] = sum[i] * x + y;
  }
  floatv total = 0.0f;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) total += sum[i];
  if (FIRST(total) == -1.0f) sink[get_global_id(0)] = FIRST(total);
}

// Item i touches the vectors i·spread, i·spread + stride, ...: `count` of them, a multiple of
// UNROLL, in each of `passes` passes.
#define EACH_VECTOR(body)                                                            \
  const long begin = (long)get_global_id(0) * spread;                                \
  for (int pass = 0; pass < passes; ++pass)                                          \
    for (long n = 0; n < count; n += UNROLL) {                                       \
      _Pragma("unroll") for (int j = 0; j < UNROLL; ++j) {                           \
        const long at = begin + (n + j) * stride;                                    \
        body;                                                                        \
      }                                                                              \
    }

__kernel void read_array(__global floatv* restrict x, __global floatv* restrict y, long spread,
                         long stride, long count, int passes) {
  floatv sum[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) sum[i] = 0.0f;
  EACH_VECTOR(sum[j] += x[at])
  floatv total = 0.0f;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) total += sum[i];
  if (FIRST(total) == -1.0f) y[begin] = total;
}

__kernel void write_array(__global floatv* restrict x, __global floatv* restrict y, long spread,
                          long stride, long count, int passes) {
  EACH_VECTOR(y[at] = (floatv)(pass))
}

__kernel void copy_array(__global floatv* restrict x, __global floatv* restrict y, long spread,
                         long stride, long count, int passes) {
  EACH_VECTOR(y[at] = x[at])
}
