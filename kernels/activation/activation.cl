// y = f(x), or f(x)·g with GATE=1, over `count` elements; f by KIND: 0 relu, 1 gelu, 2 gelu_tanh, 3
// silu, 4 tanh. A group's ITEMS items hold CHUNK vectors of V floats each, ITEMS vectors apart, so
// that neighbours read neighbouring memory. erf and tanh by the quotients of
// kernels/common/activation-inl.h and tanh-inl.h, where they are derived: OpenCL allows its own an
// error of 16 and 5 ULP.

// x·exp(-|t|) / (1 + exp(-|t|)) where t is negative, else x / (1 + exp(-|t|)).
floatv times_sigmoid(floatv x, floatv t) {
  const floatv e = exp(-fabs(t));
  return (t < 0.0f ? x * e : x) / (1.0f + e);
}

#if KIND == 0
#define ACTIVATED(x) ((x) < 0.0f ? (floatv)0.0f : (x))
#elif KIND == 1
// The magnitudes are bounded by comparisons, which leave a NaN alone.
floatv gelu(floatv x) {
  const floatv high = fabs(x);
  const floatv m = high > 5.75f ? (floatv)5.75f : high;
  const floatv z = m * m;
  floatv p = z * 2.27159269e-8f + 6.28350426e-6f;
  p = p * z + 1.65250705e-4f;
  p = p * z + 4.65528201e-3f;
  p = p * z + 3.35489027e-2f;
  p = p * z + 3.98942292e-1f;
  floatv q = z * 1.19141362e-6f + 7.22647019e-5f;
  q = q * z + 1.86458288e-3f;
  q = q * z + 2.84631904e-2f;
  q = q * z + 2.50761092e-1f;
  q = q * z + 1.0f;
  const floatv ratio = m * p / q;
  return x * (0.5f + copysign(ratio > 0.5f ? (floatv)0.5f : ratio, x));
}
#define ACTIVATED gelu
#elif KIND == 2
#define ACTIVATED(x) times_sigmoid(x, (x) * ((x) * (x) * 0.0713548163f + 1.59576912f))
#elif KIND == 3
#define ACTIVATED(x) times_sigmoid(x, x)
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
