// Products of matrices on NVIDIA's tensor cores, without loads: mma.sync on tf32 or f16 operands with
// float32 sums. Only for devices whose probe (src/backends/opencl_features.hpp) ran the instruction.
// CHAINS independent accumulators per warp by -D; -DF16=1 for f16. `start` holds 6 values between 0.5
// and 1 for every lane of a warp: operands of zero would save power and let the clock rise beyond
// what a real product sees.

#if F16
#define A_AND_B(i) two_halves(start[lane + 32 * (i)])
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
// Two f16 between 0.5 and 1 with the value's uppermost bits.
uint two_halves(float x) {
  const uint bits = 0x3800u | ((as_uint(x) >> 13) & 0x3ffu);
  return bits | (bits << 16);
}
#else
#define A_AND_B(i) as_uint(start[lane + 32 * (i)])
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#endif

// steps × CHAINS products per warp: 16×8×8 multiply-adds each with tf32, 16×8×16 with f16.
__kernel void mma_peak(__global const float* restrict start, __global float* restrict sink,
                       int steps) {
  const int lane = get_local_id(0) % 32;
  const uint a0 = A_AND_B(0), a1 = A_AND_B(1), a2 = A_AND_B(2), a3 = A_AND_B(3);
  const uint b0 = A_AND_B(4), b1 = A_AND_B(5);
  float c[CHAINS][4];
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) {
    c[i][0] = c[i][1] = c[i][2] = c[i][3] = (float)(i + lane);
  }
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
      asm volatile(MMA " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) total += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  if (total == -1.0f) sink[get_global_id(0)] = total;
}
