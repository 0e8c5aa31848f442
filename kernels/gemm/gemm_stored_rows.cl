// The part of gemm_skinny.cl that multiplies rows of b in their stored format. A lane decodes a unit of k of
// each row: two blocks of GGUF (of q4_1 one), an odd number of words, so that lanes meet different
// banks; of other formats 16 bytes. Integers become floats without a conversion, as low bits of 2^23.

#if STORED
#if B_TYPE == Q4_0
#define UNIT 64
#define UNIT_WORDS 9
#elif B_TYPE == Q4_1
#define UNIT 32
#define UNIT_WORDS 5
#elif B_TYPE == Q8_0
#define UNIT 64
#define UNIT_WORDS 17
#elif B_TYPE == S8C
#define UNIT 16
#define UNIT_WORDS 4
#else
#define UNIT 8
#define UNIT_WORDS 4
#endif
#define CHUNK (32 * UNIT)  // of k
#define CHUNK_WORDS (32 * UNIT_WORDS)
#define STAGE_WORDS (R * CHUNK_WORDS)

#if CODE_PATH == 1
// 2^23 + byte i of x.
#define BYTE_ABOVE(x, i) byte_above(x, 0x7440 + (i))
float byte_above(uint x, uint selector) {
  uint bits;
  asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(bits) : "r"(x), "r"(0x4B000000u), "r"(selector));
  return as_float(bits);
}
#else
#define BYTE_ABOVE(x, i) as_float(0x4B000000u | ((x) >> 8 * (i) & 255u))
#endif
// Its four bytes less `zero`, as floats.
#define FOUR_OF(x, zero)                                                                        \
  ((float4)(BYTE_ABOVE(x, 0), BYTE_ABOVE(x, 1), BYTE_ABOVE(x, 2), BYTE_ABOVE(x, 3)) -           \
   (8388608.0f + (zero)))

// part[r][i] += four steps of k, row i of x times row r of b.
#define ADD_FOUR(r, four_of_k, weights)                                                         \
  UNROLL_LANES for (int i = 0; i < FEW; ++i)                                                    \
      part[r][i] = fma(x[four_of_k][i].w, (weights).w, fma(x[four_of_k][i].z, (weights).z,      \
                   fma(x[four_of_k][i].y, (weights).y,                                          \
                       fma(x[four_of_k][i].x, (weights).x, part[r][i]))));
#define LOAD_X(place, four_of_k)                                                                \
  UNROLL_LANES for (int i = 0; i < FEW; ++i)                                                    \
      x[place][i] = *(__local const float4*)(x_tile + i * KC + ((four_of_k)*32 + lane) * 4);
#define WORD(r, t) own[(r)*CHUNK_WORDS + lane * UNIT_WORDS + (t)]

// A unit of every row: x_tile is the chunk's. Inlined, since a call would put the sums in memory.
#if IN_BLOCKS
INLINED void multiply_unit(float (*sum)[FEW], __local const uint* own,
                                                  __local const float* x_tile, int lane) {
  UNROLL_LANES
  for (int block = 0; block < UNIT / 32; ++block) {
    float part[R][FEW];
    float scale[R];
    float zero[R];
    UNROLL_LANES
    for (int r = 0; r < R; ++r) {
      const uint head = WORD(r, block * (UNIT_WORDS / 2));
      scale[r] = float_of_half((ushort)(block == 0 ? head : head >> 16));
      zero[r] = B_TYPE == Q4_1 ? float_of_half((ushort)(head >> 16)) : 0.0f;
      UNROLL_LANES
      for (int i = 0; i < FEW; ++i) part[r][i] = 0.0f;
    }
    UNROLL_LANES
    for (int t = 0; t < (B_TYPE == Q8_0 ? 8 : 4); ++t) {
      float4 x[2][FEW];
      LOAD_X(0, block * 8 + t)
#if B_TYPE != Q8_0
      LOAD_X(1, block * 8 + 4 + t)
#endif
      UNROLL_LANES
      for (int r = 0; r < R; ++r) {
        // The second block's integers begin at a word, the first one's in its middle.
        const bool is_straight = B_TYPE == Q4_1 || block == 1;
        const int first = B_TYPE == Q4_1 ? 1 : block * (UNIT_WORDS / 2 + 1);
        const uint word = is_straight ? WORD(r, first + t)
                                      : WORD(r, t) >> 16 | WORD(r, t + 1) << 16;
#if B_TYPE == Q8_0
        const float4 w = FOUR_OF(word ^ 0x80808080u, 128.0f);
        ADD_FOUR(r, 0, w)
#else
        float4 low = FOUR_OF(word & 0x0F0F0F0Fu, B_TYPE == Q4_0 ? 8.0f : 0.0f);
        float4 high = FOUR_OF(word >> 4 & 0x0F0F0F0Fu, B_TYPE == Q4_0 ? 8.0f : 0.0f);
#if B_TYPE == Q4_1
        low = fma(low, (float4)(scale[r]), (float4)(zero[r]));
        high = fma(high, (float4)(scale[r]), (float4)(zero[r]));
#endif
        ADD_FOUR(r, 0, low)
        ADD_FOUR(r, 1, high)
#endif
      }
    }
    UNROLL_LANES
    for (int r = 0; r < R; ++r)
      UNROLL_LANES
      for (int i = 0; i < FEW; ++i)
        sum[r][i] = B_TYPE == Q4_1 ? sum[r][i] + part[r][i] : fma(scale[r], part[r][i], sum[r][i]);
  }
}
#else
INLINED void multiply_unit(float (*part)[FEW], __local const uint* own,
                                                  __local const float* x_tile, int lane) {
  uint words[R][4];
  UNROLL_LANES
  for (int r = 0; r < R; ++r) {
    const uint4 all = *(__local const uint4*)(own + r * CHUNK_WORDS + lane * 4);
    words[r][0] = all.x, words[r][1] = all.y, words[r][2] = all.z, words[r][3] = all.w;
  }
  UNROLL_LANES
  for (int t = 0; t < UNIT / 4; ++t) {
    float4 x[1][FEW];
    LOAD_X(0, t)
    UNROLL_LANES
    for (int r = 0; r < R; ++r) {
#if B_TYPE == S8C
      const float4 w = FOUR_OF(words[r][t] ^ 0x80808080u, 128.0f);
#else
      const uint u = words[r][2 * t];
      const uint v = words[r][2 * t + 1];
#if B_TYPE == BF16
      const float4 w = as_float4((uint4)(u << 16, u & 0xFFFF0000u, v << 16, v & 0xFFFF0000u));
#else
      const float4 w = (float4)(float_of_half((ushort)u), float_of_half((ushort)(u >> 16)),
                                float_of_half((ushort)v), float_of_half((ushort)(v >> 16)));
#endif
#endif
      ADD_FOUR(r, 0, w)
    }
  }
}
#endif
#endif  // STORED
