// What matrix units need for results, put before attention_tensor.cl and attention_wgmma.cl: the range of
// o's format, rounding to it, and rows that go beyond it, which are computed again.

#if TYPE == F16
#define LARGEST 65504.0f
#elif TYPE == BF16
#define LARGEST 3.38953138925e38f
#else
#define LARGEST FLT_MAX
#endif

#if TYPE != F32
// Two floats, rounded to nearest, as a register.
#if CODE_PATH == 1
#define PACK_INTO(to, x, y) asm(PACKING " %0, %1, %2;" : "=r"(to) : "f"(y), "f"(x))
#if TYPE == F16
#define PACKING "cvt.rn.f16x2.f32"
#else
#define PACKING "cvt.rn.bf16x2.f32"
#endif
#else
#define PACK_INTO(to, x, y) to = packed(x, y)
uint packed(float x, float y) {
  ushort bits[2];
  STORE_ONE(x, (__private element*)bits, 0);
  STORE_ONE(y, (__private element*)bits, 1);
  return bits[0] | (uint)bits[1] << 16;
}
#endif
#endif

// A row in plain float32 by one item, some columns after the others.
#define STRICT_COLUMNS 16
INLINED void strict_row(__global const element* q, __global const element* k, __global const element* v,
                __global element* o, int keys, float scale2) {
  float high = -FLT_MAX;
  for (int d0 = -STRICT_COLUMNS; d0 < D; d0 += STRICT_COLUMNS) {  // first the maximum alone
    float total = 0.0f;
    float sum[STRICT_COLUMNS];
    EACH(c, STRICT_COLUMNS) sum[c] = 0.0f;
    for (int key = 0; key < keys; ++key) {
      float score = 0.0f;
      for (int d = 0; d < D; ++d)
        score = fma(LOAD_ONE(q, d) * scale2, LOAD_ONE(k, (long)key * D + d), score);
      if (d0 < 0) {
        high = fmax(high, score);
        continue;
      }
      const float weight = fast_exp2(score - high);
      total += weight;
      EACH(c, STRICT_COLUMNS)
        sum[c] = fma(weight, LOAD_ONE(v, (long)key * D + min(d0 + c, D - 1)), sum[c]);
    }
    EACH(c, STRICT_COLUMNS)
      if (d0 >= 0 && d0 + c < D) STORE_ONE(sum[c] / total, o, d0 + c);
  }
}
