// What becomes of sums where c is of any format: c = epilogue(alpha·sum + beta·c0), put before the kernels
// that take number formats. C_TYPE, A_TYPE and B_TYPE are one of these:
#define F32 0
#define F16 1
#define BF16 2
#define S8 3
#define U8 4
#define S32 5
#define Q8_0 6
#define Q4_0 7
#define Q4_1 8
#define S8C 9

// Integers are multiplied and summed exactly, and nothing follows their product.
#define INTEGERS (C_TYPE == S32)
#if INTEGERS
typedef int number;
typedef int4 number4;
#else
typedef float number;
typedef float4 number4;
#endif

#if CODE_PATH == 1
float float_of_half(ushort bits) {
  float v;
  asm volatile("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
  return v;
}
#else
float float_of_half(ushort bits) { return vload_half(0, (const __private half*)&bits); }
#endif
float float_of_bfloat(ushort bits) { return as_float((uint)bits << 16); }

#if C_TYPE == F16 || C_TYPE == BF16
typedef ushort stored;
typedef ushort4 stored4;
// The upper half of the float; a NaN, which rounding could carry into the sign, is made quiet.
ushort stored_of(float v) {
#if C_TYPE == F16
  ushort bits;
  vstore_half_rte(v, 0, (__private half*)&bits);
  return bits;
#else
  const uint bits = as_uint(v);
  return (ushort)(isnan(v) ? (bits >> 16) | 64 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
#endif
}
#define NUMBER_OF(x) (C_TYPE == F16 ? float_of_half(x) : float_of_bfloat(x))
stored4 stored4_of(float4 v) {
#if CODE_PATH == 1
  uint2 bits;
#if C_TYPE == F16
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits.x) : "f"(v.y), "f"(v.x));
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits.y) : "f"(v.w), "f"(v.z));
#else
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits.x) : "f"(v.y), "f"(v.x));
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits.y) : "f"(v.w), "f"(v.z));
#endif
  return as_ushort4(bits);
#else
  return (stored4)(stored_of(v.x), stored_of(v.y), stored_of(v.z), stored_of(v.w));
#endif
}
number4 number4_of(stored4 x) {
  return (number4)(NUMBER_OF(x.x), NUMBER_OF(x.y), NUMBER_OF(x.z), NUMBER_OF(x.w));
}
#else
typedef number stored;
typedef number4 stored4;
#define stored_of(v) (v)
#define NUMBER_OF(x) (x)
#define stored4_of(v) (v)
#define number4_of(x) (x)
#endif

// The last arguments of a kernel, and what hands them on. Without a chain nobody reads the last two.
#define OUTPUT_ARGS                                                                               \
  , __global const stored *restrict c0, __global stored *restrict c, float alpha, float beta,     \
      __global const float *restrict bias, __global const stored *restrict residual
#define OUTPUT c0, c, alpha, beta, bias, residual

number one_result(number sum, long at, int col OUTPUT_ARGS) {
#if INTEGERS
  return sum;
#else
  float v = alpha * sum;
  if (beta != 0.0f) v += beta * NUMBER_OF(c0[at]);
#if CHAIN
  v = epilogue_one(v, HAS_BIAS ? bias[col] : 0.0f, HAS_ADD ? NUMBER_OF(residual[at]) : 0.0f);
#endif
  return v;
#endif
}

// Element `at` of c, in column `col`.
void put_one(number sum, long at, int col OUTPUT_ARGS) {
  c[at] = stored_of(one_result(sum, at, col, OUTPUT));
}

// Four neighbours, the first `count` of them. C_VECTORS=1: rows of c are a multiple of four long.
void put_four(number4 sum, long at, int col, int count OUTPUT_ARGS) {
#if C_VECTORS
  if (count <= 0) return;
#if !INTEGERS
  sum *= alpha;
  if (beta != 0.0f) sum += beta * number4_of(*(__global const stored4*)(c0 + at));
#if CHAIN
  sum = epilogue(sum, HAS_BIAS ? *(__global const float4*)(bias + col) : (float4)(0.0f),
                 HAS_ADD ? number4_of(*(__global const stored4*)(residual + at)) : (float4)(0.0f));
#endif
#endif
  *(__global stored4*)(c + at) = stored4_of(sum);
#else
  if (count > 0) put_one(sum.x, at, col, OUTPUT);
  if (count > 1) put_one(sum.y, at + 1, col + 1, OUTPUT);
  if (count > 2) put_one(sum.z, at + 2, col + 2, OUTPUT);
  if (count > 3) put_one(sum.w, at + 3, col + 3, OUTPUT);
#endif
}

// gate=1, for which alpha is 1 and beta 0: silu(gate) · up.
#if GATE
number4 gated(number4 gate, number4 up) { return silu(gate) * up; }
#endif
