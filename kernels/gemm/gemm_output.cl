// What becomes of sums where c is of any format: c = epilogue(alpha·sum + beta·c0), put before the kernels
// that take number formats. C_TYPE, A_TYPE and B_TYPE are formats of formats.cl.

// Integers are multiplied and summed exactly, and nothing follows their product.
#define INTEGERS (C_TYPE == S32)
#if INTEGERS
#define NUMBER int
#else
#define NUMBER float
#endif
typedef NUMBER number;
typedef CAT(NUMBER, 4) number4;
typedef ELEMENT(C_TYPE) stored;
#if V == 1
typedef number numberv;
typedef stored storedv;
#else
typedef CAT(NUMBER, V) numberv;
typedef CAT(ELEMENT(C_TYPE), V) storedv;
#endif

#if C_TYPE == F16 || C_TYPE == BF16
ushort stored_of(float v) {
#if C_TYPE == F16
  ushort bits;
  vstore_half_rte(v, 0, (__private half*)&bits);
  return bits;
#else
  return bfloat_of(v);
#endif
}
#define NUMBER_OF(x) (C_TYPE == F16 ? float_of_half(x) : float_of_bfloat(x))
#if CODE_PATH == 1
#if C_TYPE == F16
#define TWO_STORED "cvt.rn.f16x2.f32 %0, %1, %2;"
#else
#define TWO_STORED "cvt.rn.bf16x2.f32 %0, %1, %2;"
#endif
storedv storedv_of(float4 v) {
  uint2 bits;
  asm volatile(TWO_STORED : "=r"(bits.x) : "f"(v.y), "f"(v.x));
  asm volatile(TWO_STORED : "=r"(bits.y) : "f"(v.w), "f"(v.z));
  return as_ushort4(bits);
}
#else
storedv storedv_of(numberv v) {
  number from[V];
  stored to[V];
  VSTORE(v, from);
  for (int i = 0; i < V; ++i) to[i] = stored_of(from[i]);
  return VLOAD(to);
}
#endif
numberv numberv_of(storedv x) {
  stored from[V];
  number to[V];
  VSTORE(x, from);
  EACH(i, V) to[i] = NUMBER_OF(from[i]);
  return VLOAD(to);
}
#else
#define stored_of(v) (v)
#define NUMBER_OF(x) (x)
#define storedv_of(v) (v)
#define numberv_of(x) (x)
#endif
// C_VECTORS=1: rows of c are a multiple of V long, so that every vector of it is aligned.
#if C_VECTORS
#define C_LOAD(p) (*(__global const storedv*)(p))
#define C_STORE(v, p) (*(__global storedv*)(p) = (v))
#else
#define C_LOAD VLOAD
#define C_STORE VSTORE
#endif

// The last arguments of a kernel, those of its functions (restrict there is more than oclgrind knows), and
// what hands them on. Without a chain nobody reads the last two.
#define OUTPUT_OF(restrict_)                                                                      \
  , __global const stored *restrict_ c0, __global stored *restrict_ c, float alpha, float beta,   \
      __global const float *restrict_ bias, __global const stored *restrict_ residual
#define OUTPUT_ARGS OUTPUT_OF(restrict)
#define OUTPUT_PARAMS OUTPUT_OF()
#define OUTPUT c0, c, alpha, beta, bias, residual

// Element `at` of c, in column `col`.
void put_one(number sum, long at, int col OUTPUT_PARAMS) {
#if !INTEGERS
  sum *= alpha;
  if (beta != 0.0f) sum += beta * NUMBER_OF(c0[at]);
#if CHAIN
  sum = epilogue_one(sum, HAS_BIAS ? bias[col] : 0.0f, HAS_ADD ? NUMBER_OF(residual[at]) : 0.0f);
#endif
#endif
  c[at] = stored_of(sum);
}

// V neighbours, the first `count` of them; `col` is a multiple of V.
void put_vector(numberv sum, long at, int col, int count OUTPUT_PARAMS) {
  if (count < V) {
#if !C_VECTORS
    number one[V];
    VSTORE(sum, one);
    EACH(i, V)
      if (i < count) put_one(one[i], at + i, col + i, OUTPUT);
#endif
    return;
  }
#if !INTEGERS
  sum *= alpha;
  if (beta != 0.0f) sum += beta * numberv_of(C_LOAD(c0 + at));
#if CHAIN
  sum = epilogue(sum, HAS_BIAS ? *(__global const floatv*)(bias + col) : (floatv)(0.0f),
                 HAS_ADD ? numberv_of(C_LOAD(residual + at)) : (floatv)(0.0f));
#endif
#endif
  C_STORE(storedv_of(sum), c + at);
}

// gate=1, for which alpha is 1 and beta 0: silu(gate) · up.
#if GATE
numberv gated(numberv gate, numberv up) { return silu(gate) * up; }
#endif
