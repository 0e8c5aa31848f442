// c = op(a)·op(b) for few rows of a (FEW, at most 8) against weights with rows along k: float16, bfloat16,
// 8-bit integers, blocks of GGUF. Memory decides: b is read once, in pieces of 16 bytes that arrive in
// local memory while what came before is multiplied. B_TYPE and what follows the product:
// gemm_output.cl.
//
// A warp owns R rows of b and reads them chunk by chunk, 32 units of k each; a lane decodes a unit of
// every row: two blocks (of q4_1 one), an odd number of words, so that lanes meet different banks;
// of other formats 16 bytes. op(a) stays in local memory as float32, [row][chunk][four of k][lane][4], so
// that four neighbours serve R rows and lanes read side by side. Groups take blocks of WARPS × R rows in
// turn, and with SPLITS > 1 a share of k, whose sums add_weight_parts adds up.
// Integers become floats without a conversion, as low bits of 2^23.
// GATE=1: half of a warp's rows are gate's, the others up's.

#define ITEMS (32 * WARPS)
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
#define OWN (R / (1 + GATE))  // columns of c of a warp
#define X_PLACE(p) \
  (((p) / CHUNK * (UNIT / 4) + (p) % UNIT / 4) * 128 + (p) % CHUNK / UNIT * 4 + (p) % 4)

#if A_TYPE == F32
typedef float a_element;
#define FLOAT_OF_A(x) (x)
#else
typedef ushort a_element;
#define FLOAT_OF_A(x) (A_TYPE == F16 ? float_of_half(x) : float_of_bfloat(x))
#endif

#if CODE_PATH == 1
#define WARP_BARRIER asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
// 2^23 + byte i of x.
#define BYTE_ABOVE(x, i) byte_above(x, 0x7440 + (i))
float byte_above(uint x, uint selector) {
  uint bits;
  asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(bits) : "r"(x), "r"(0x4B000000u), "r"(selector));
  return as_float(bits);
}
#else
#define WARP_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define BYTE_ABOVE(x, i) as_float(0x4B000000u | ((x) >> 8 * (i) & 255u))
#endif
// Its four bytes less `zero`, as floats.
#define FOUR_OF(x, zero)                                                                        \
  ((float4)(BYTE_ABOVE(x, 0), BYTE_ABOVE(x, 1), BYTE_ABOVE(x, 2), BYTE_ABOVE(x, 3)) -           \
   (8388608.0f + (zero)))

// part[r][i] += four steps of k, row i of a times row r of b.
#define ADD_FOUR(r, four_of_k, weights)                                                              \
  UNROLL_LANES for (int i = 0; i < FEW; ++i)                                               \
      part[r][i] = fma(x[four_of_k][i].w, (weights).w, fma(x[four_of_k][i].z, (weights).z,                \
                   fma(x[four_of_k][i].y, (weights).y, fma(x[four_of_k][i].x, (weights).x, part[r][i]))));
#define LOAD_X(place, four_of_k)                                                                \
  UNROLL_LANES for (int i = 0; i < FEW; ++i)                                               \
      x[place][i] = *(__local const float4*)(x_tile + i * KS + ((four_of_k)*32 + lane) * 4);
#define WORD(r, t) own[(r)*CHUNK_WORDS + lane * UNIT_WORDS + (t)]

// A unit of every row: x_tile is the chunk's. Inlined, since a call would put the sums in memory.
__attribute__((always_inline)) void multiply_unit(float (*sum)[FEW], __local const uint* own,
                                                  __local const float* x_tile, int lane) {
#if B_TYPE == Q4_0 || B_TYPE == Q4_1 || B_TYPE == Q8_0
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
#else
  float(*part)[FEW] = sum;
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
#elif B_TYPE == BF16
      const uint u = words[r][2 * t];
      const uint v = words[r][2 * t + 1];
      const float4 w = as_float4((uint4)(u << 16, u & 0xFFFF0000u, v << 16, v & 0xFFFF0000u));
#else
      const uint u = words[r][2 * t];
      const uint v = words[r][2 * t + 1];
      const float4 w = (float4)(float_of_half((ushort)u), float_of_half((ushort)(u >> 16)),
                                float_of_half((ushort)v), float_of_half((ushort)(v >> 16)));
#endif
      ADD_FOUR(r, 0, w)
    }
  }
#endif
}

// row_bytes: of b, a multiple of 16. blocks: of WARPS·OWN columns of c; groups: of a share of k, KS of k long.
// k = 0 reads neither a nor b.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_weights(
    __global const a_element* restrict a, __global const uchar* restrict b,
    __global const float* restrict b_scale, __global float* restrict parts, int n, int k, int a_outer,
    int a_inner, int row_bytes, int blocks, int groups OUTPUT_ARGS) {
  __local float x_all[FEW * KS] __attribute__((aligned(16)));
  __local uint stages[WARPS * STAGES * STAGE_WORDS] __attribute__((aligned(16)));
#if CODE_PATH == 0
  __local float scratch[ITEMS];
#else
#define scratch 0
#endif
  const int lid = get_local_id(0);
  const int lane = lid % 32;
  const int warp = lid / 32;
  const int split = get_group_id(0) / groups;
  const int group = get_group_id(0) % groups;
  const int k_begin = min(split * KS, k);
  const int k_own = min(KS, k - k_begin);
  const int chunks = (k_own + CHUNK - 1) / CHUNK;
  const int first_byte = k_begin / UNIT * (UNIT_WORDS * 4);
  const int bytes_left = row_bytes - first_byte;
  for (int at = lid; at < FEW * KS; at += ITEMS) {
    const int i = at / KS;
    const int p = at % KS;
    x_all[i * KS + X_PLACE(p)] =
        p < k_own ? FLOAT_OF_A(a[(long)i * a_outer + (long)(k_begin + p) * a_inner]) : 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  __local uint* own = stages + warp * (STAGES * STAGE_WORDS);
  const int own_blocks = group < blocks ? (blocks - group + groups - 1) / groups : 0;
  int copy_col = (group * WARPS + warp) * OWN;  // what the next copy reads
  int copy_chunk = 0;
  const int blocks_apart = groups * WARPS * OWN;
#define COLUMN_OF(col, r) ((r) < OWN ? (col) + (r) : n + (col) + (r) - OWN)
// Beyond a row's end or the last row zeros.
#define COPY_CHUNK(slot)                                                                        \
  for (int at = lane; at < STAGE_WORDS / 4; at += 32) {                                         \
    const int r = at / (CHUNK_WORDS / 4);                                                       \
    const int byte = copy_chunk * (CHUNK_WORDS * 4) + at % (CHUNK_WORDS / 4) * 16;              \
    const bool is_inside = copy_col + r % OWN < n && byte < bytes_left && k > 0;                \
    copy_async4((__local float*)(own + (slot)*STAGE_WORDS + at * 4),                            \
                (__global const float*)(b + (long)COLUMN_OF(copy_col, r) * row_bytes +          \
                                        first_byte + byte),                                     \
                is_inside ? 4 : 0);                                                             \
  }                                                                                             \
  copies_commit();                                                                              \
  if (++copy_chunk >= chunks) copy_chunk = 0, copy_col += blocks_apart;

  for (int s = 0; s < STAGES - 1; ++s) {
    COPY_CHUNK(s)
  }
  int slot = 0;
  int last_slot = STAGES - 1;
  for (int block = 0; block < own_blocks; ++block) {
    const int col = ((group + block * groups) * WARPS + warp) * OWN;
    float sum[R][FEW];
  UNROLL_LANES
    for (int r = 0; r < R; ++r)
  UNROLL_LANES
      for (int i = 0; i < FEW; ++i) sum[r][i] = 0.0f;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      copies_wait(STAGES - 2);
      WARP_BARRIER;
      COPY_CHUNK(last_slot)
      multiply_unit(sum, own + slot * STAGE_WORDS, x_all + chunk * CHUNK, lane);
      last_slot = slot;
      slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
  UNROLL_LANES
    for (int r = 0; r < R; ++r)
  UNROLL_LANES
      for (int i = 0; i < FEW; ++i) sum[r][i] = near_add(sum[r][i], scratch, 32, 1);
  UNROLL_LANES
    for (int r = 0; r < OWN; ++r)
  UNROLL_LANES
      for (int i = 0; i < FEW; ++i) {
        if (lane != (r * FEW + i) % 32 || col + r >= n) continue;
        const long at = (long)i * n + col + r;
        const float scale = B_TYPE == S8C && k > 0 ? b_scale[col + r] : 1.0f;
#if SPLITS > 1
        for (int product = 0; product <= GATE; ++product)
          parts[(long)(split * (1 + GATE) + product) * FEW * n + at] =
              scale * sum[product * OWN + r][i];
#elif GATE
        put_one(gated((float4)(sum[r][i]), (float4)(sum[OWN + r][i])).x, at, col + r, OUTPUT);
#else
        put_one(scale * sum[r][i], at, col + r, OUTPUT);
#endif
      }
  }
}

// c from the SPLITS parts, added in order; an item per element. With GATE a part is gate's sums, then up's.
__kernel void add_weight_parts(__global const float* restrict parts, int n OUTPUT_ARGS) {
  const int at = get_global_id(0);
  if (at >= FEW * n) return;
  float total[1 + GATE];
  for (int product = 0; product <= GATE; ++product) {
    total[product] = 0.0f;
    for (int s = 0; s < SPLITS; ++s)
      total[product] += parts[(long)(s * (1 + GATE) + product) * FEW * n + at];
  }
#if GATE
  total[0] = gated((float4)(total[0]), (float4)(total[1])).x;
#endif
  put_one(total[0], at, at % n, OUTPUT);
}
