// y = f(x), or f(x)·g with GATE=1, over `count` elements; f by KIND: 0 relu, 1 gelu, 2 gelu_tanh, 3
// silu, 4 tanh. A group's ITEMS items hold CHUNK vectors of V floats each, ITEMS vectors apart, so
// that neighbours read neighbouring memory. The functions are in kernels/common/activations.cl.

#if KIND == 0
#define ACTIVATED relu
#elif KIND == 1
#define ACTIVATED gelu
#elif KIND == 2
#define ACTIVATED gelu_tanh
#elif KIND == 3
#define ACTIVATED silu
#else
floatv bounded_tanh(floatv x) {
  const floatv high = fabs(x);
  const floatv m = high > 9.4f ? (floatv)9.4f : high;
  const floatv z = m * m;
  floatv p = z * 1.33903574e-8f + 2.06402055e-5f;
  p = p * z + 3.49772489e-3f;
  p = p * z + 1.33829117e-1f;
  p = p * z + 1.0f;
  floatv q = z * 7.79273478e-7f + 3.28895345e-4f;
  q = q * z + 2.58853771e-2f;
  q = q * z + 4.67162341e-1f;
  q = q * z + 1.0f;
  const floatv ratio = m * p / q;
  return copysign(ratio > 1.0f ? (floatv)1.0f : ratio, x);
}
#define ACTIVATED bounded_tanh
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void activation(
    __global const element* restrict x, __global element* restrict y, long count
#if GATE
    , __global const element* restrict g
#define TIMES_GATE * GLOAD(g + at)
#define TIMES_LAST_GATE * load_some(g + at, rest, 0.0f)
#else
#define TIMES_GATE
#define TIMES_LAST_GATE
#endif
    ) {
  const long first = (long)get_group_id(0) * (ITEMS * CHUNK) + get_local_id(0);
  floatv part[CHUNK];
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const long at = (first + j * ITEMS) * V;
    if (at + V <= count) part[j] = GLOAD(x + at);
  }
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const long at = (first + j * ITEMS) * V;
    if (at + V <= count) {
      GSTORE(ACTIVATED(part[j]) TIMES_GATE, y + at);
    } else if (at < count) {
      const int rest = (int)(count - at);
      const floatv last = load_some(x + at, rest, 0.0f);
      store_some(ACTIVATED(last) TIMES_LAST_GATE, y + at, rest);
    }
  }
}
