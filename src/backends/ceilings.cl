// Loops that reach a device's limits: FMA, exp and unfused operations without loads, and reading,
// writing, copying an array.
// V floats per vector and UNROLL independent chains or streams by -D. What a compiler can see
// through it leaves out, as a GPU's did with lanes that always held the same value: every lane of
// every chain starts from memory, and all of them count in what may be stored at the end.

#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)
#if V == 1
typedef float floatv;
#define LOAD(i, from) ((from)[i])
#else
typedef CAT(float, V) floatv;
#define LOAD(i, from) CAT(vload, V)(i, from)
#endif

// Sum of a vector's lanes.
#define SUM1(x) (x)
#define SUM2(x) ((x).s0 + (x).s1)
#define SUM4(x) (SUM2((x).lo) + SUM2((x).hi))
#define SUM8(x) (SUM4((x).lo) + SUM4((x).hi))
#define SUM16(x) (SUM8((x).lo) + SUM8((x).hi))
#define SUM(x) CAT(SUM, V)(x)

// steps × UNROLL multiply-adds of V lanes per item; x = 1 - tiny keeps values finite and normal.
// `start` holds UNROLL × V different positive values, so that the total never is -1.
__kernel void fma_peak(__global const float* restrict start, __global float* restrict sink, float x,
                       float y, int steps) {
  floatv sum[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) sum[i] = LOAD(i, start) + (float)get_local_id(0);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) sum[i] = sum[i] * x + y;
  }
  floatv total = 0.0f;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) total += sum[i];
  if (SUM(total) == -1.0f) sink[get_global_id(0)] = SUM(total);
}

// steps × UNROLL × V exps an item, by the same function as in the kernels. x = exp(-x) leads to
// 0.567 from any start value; the sign costs no instruction.
__kernel void exp_rate(__global const float* restrict start, __global float* restrict sink,
                       int steps) {
  floatv x[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) x[i] = LOAD(i, start) + (float)get_local_id(0);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) x[i] = exp(-x[i]);
  }
  floatv total = 0.0f;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) total += x[i];
  if (SUM(total) == -1.0f) sink[get_global_id(0)] = SUM(total);
}

// steps × UNROLL × V × 4 operations an item: sum, product, maximum, difference. No product is added
// to, so that none becomes a multiply-add. x = 0.5, y = 0.25, z = 1 lead to 0.5.
__kernel void unfused_rate(__global const float* restrict start, __global float* restrict sink,
                           float x, float y, float z, int steps) {
  floatv a[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) a[i] = LOAD(i, start) + (float)get_local_id(0);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      const floatv scaled = (a[i] + z) * x;
      a[i] = (scaled > y ? scaled : (floatv)(y)) - y;
    }
  }
  floatv total = 0.0f;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) total += a[i];
  if (SUM(total) == -1.0f) sink[get_global_id(0)] = SUM(total);
}

// The array is cut into `slices`, one for each of as many groups. With more groups than that the
// first `slices` of them make one pass, the next ones another, and so on, like launches back to back
// without the time between them. Each pass shifts the slices by so many groups (the argument), so
// that a slice does not return to the core that has it in its own cache.
// Item i of a slice touches the vectors i·spread, i·spread + stride, ... from there: `count` of
// them, a multiple of UNROLL, in each of `passes` passes of its own; with back = 1 every second one
// walks backwards and finds what the caches kept of the one before.
#define EACH_VECTOR(body)                                                                \
  const long slice = (get_group_id(0) + get_group_id(0) / slices * turn) % slices;       \
  const long begin = (slice * (long)get_local_size(0) + (long)get_local_id(0)) * spread; \
  for (int pass = 0; pass < passes; ++pass) {                                            \
    const long step = (pass & back) ? -UNROLL : UNROLL;                                  \
    long n = (pass & back) ? count - UNROLL : 0;                                         \
    for (long left = count; left > 0; left -= UNROLL, n += step) {                       \
      _Pragma("unroll") for (int j = 0; j < UNROLL; ++j) {                               \
        const long at = begin + (n + j) * stride;                                        \
        body;                                                                            \
      }                                                                                  \
    }                                                                                    \
  }

__kernel void read_array(__global floatv* restrict x, __global floatv* restrict y, long slices,
                         long turn, long spread, long stride, long count, int passes, int back) {
  floatv sum[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) sum[i] = 0.0f;
  EACH_VECTOR(sum[j] += x[at])
  floatv total = 0.0f;
#pragma unroll
  for (int i = 0; i < UNROLL; ++i) total += sum[i];
  if (SUM(total) == -1.0f) y[begin] = total;
}

__kernel void write_array(__global floatv* restrict x, __global floatv* restrict y, long slices,
                          long turn, long spread, long stride, long count, int passes,
                          int back){EACH_VECTOR(y[at] = (floatv)(pass))}

__kernel void copy_array(__global floatv* restrict x, __global floatv* restrict y, long slices,
                         long turn, long spread, long stride, long count, int passes, int back) {
  EACH_VECTOR(y[at] = x[at])
}
