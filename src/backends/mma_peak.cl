// Products of matrices on NVIDIA's tensor cores, without loads: mma.sync on tf32, f16, bf16 or s8
// operands with float32 or int32 sums, and dp4a, which the other lanes have. Only for devices on
// which the probe (src/backends/opencl_features.hpp) ran the instruction. CHAINS independent
// accumulators per warp and UNIT_TF32, UNIT_F16, UNIT_BF16, UNIT_S8 or UNIT_DP4A by -D. `start`
// holds 6 values between 0.5 and 1 for every lane of a warp: operands of zero would save power and
// let the clock rise beyond what a real product sees.

#if UNIT_TF32
#define A_AND_B(i) as_uint(start[lane + 32 * (i)])
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#elif UNIT_F16
#define A_AND_B(i) two_of(start[lane + 32 * (i)], 0x3800u, 13)
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#elif UNIT_BF16
#define A_AND_B(i) two_of(start[lane + 32 * (i)], 0x3F00u, 16)
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
// The uppermost bits of the significands are bytes of any size and sign.
#define A_AND_B(i) (as_uint(start[lane + 32 * (i)]) << 3)
#define MMA "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
#endif
// Two numbers between 0.5 and 1 with the value's uppermost bits: those of 0.5, and how many bits fewer
// than a float32's the format's significand has.
uint two_of(float x, uint half_bits, int fewer) {
  const uint bits = half_bits | ((as_uint(x) & 0x7FFFFFu) >> fewer);
  return bits | (bits << 16);
}
#if UNIT_S8 || UNIT_DP4A
typedef int number;
#define SUM "+r"
#else
typedef float number;
#define SUM "+f"
#endif
#if UNIT_DP4A
#define PRODUCTS(c)                                                                             \
  asm volatile("dp4a.s32.s32 %0, %4, %5, %0;\n\tdp4a.s32.s32 %1, %4, %6, %1;\n\t"              \
               "dp4a.s32.s32 %2, %4, %7, %2;\n\tdp4a.s32.s32 %3, %4, %8, %3;"                   \
               : "+r"((c)[0]), "+r"((c)[1]), "+r"((c)[2]), "+r"((c)[3])                         \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0))
#else
#define PRODUCTS(c)                                                                             \
  asm volatile(MMA " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                     \
               : SUM((c)[0]), SUM((c)[1]), SUM((c)[2]), SUM((c)[3])                             \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#endif

// steps × CHAINS products per warp: 16×8×8 multiply-adds each with tf32, 16×8×16 with f16 and bf16,
// 16×8×32 with s8; of dp4a four per item, of four multiply-adds each.
__kernel void mma_peak(__global const float* restrict start, __global float* restrict sink,
                       int steps) {
  const int lane = get_local_id(0) % 32;
  const uint a0 = A_AND_B(0), a1 = A_AND_B(1), a2 = A_AND_B(2), a3 = A_AND_B(3);
  const uint b0 = A_AND_B(4), b1 = A_AND_B(5);
  number c[CHAINS][4];
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) {
    c[i][0] = c[i][1] = c[i][2] = c[i][3] = (number)(i + lane);
  }
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) PRODUCTS(c[i]);
  }
  number total = 0;
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) total += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  if (total == -1) sink[get_global_id(0)] = total;
}
