// The part of gemm_skinny.cl for weights in their stored format. A group computes 16 rows of w (with GATE=1
// 8 of gate's, 8 of up's) at a time. Its warps take chunks of k by rotation; each has a ring of chunks in local
// memory, where one is multiplied while others arrive. Lane 4g + q decodes rows g and g + 8: of each 16
// steps of k ("a step") the four at 4q.
//   UNITS=1: by bf16 matrix units, which multiply exactly and sum in float32. The integers of all formats
//   but q4_1 are exact in bf16, and f16 is the sum of two; x, scaled by 2^24 so that no part is too small,
//   is the exact sum of PARTS numbers of bf16, which are columns of their own. An element of q4_0 costs 3.2
//   instructions with one row of x, 4.2 with eight (as multiply-adds in float32: 5.2 and 12.6). Where a sum
//   is infinite or NaN, multiply-adds decide. (8-bit integer units, with x as 8 digits, need a quarter fewer
//   instructions, but on an H200 preparing x takes longer than they save.)
//   UNITS=0: q4_1, a product and a sum, decoded to float32 for multiply-adds.
// Before it, what both files use.

// STORED has warps as matrix units do: a work-item each on code path 0.
#define ITEMS ((STORED && CODE_PATH == 0 ? 1 : 32) * WARPS)
#define OWN (R / (1 + GATE))  // columns of c per warp (ROWS), lane (COLUMNS) or group (STORED)
// Rows of w per block, and columns of c.
#define OWNERS (COLUMNS ? 32 : STORED ? 1 : WARPS)
#define BLOCK_ROWS (OWNERS * R)
#define BLOCK (OWNERS * OWN)
typedef a_element x_element;
#if A_TYPE == F32
typedef float4 x_four;
#else
typedef ushort4 x_four;
#endif
#define X_FROM(i, p) (X_DEEP ? (long)(i) * k + (p) : (long)(p) * few + (i))

#if STORED
#define UNITS (B_TYPE != Q4_1)
#define IN_BYTES (B_TYPE == S8C || B_TYPE == Q8_0)
// CHUNK: steps of k in a chunk; CHUNK_WORDS of a row of it, in pieces of 16 bytes; ROW_LD: words of a row in
// local memory (opencl_skinny.cpp). Rows begin 4 or 12 banks apart for reads of 4 bytes a lane, 8 for those
// of 8 bytes.
#define PIECES (R * CHUNK_WORDS / 4)
#define COPIES ((PIECES * WARP_LANES + 31) / 32)  // of a lane
#define STAGE_WORDS (R * ROW_LD)
#define STEPS (CHUNK / 16)

// PARTS: columns that are added up for a row of x, which are its parts, or the sums of a row's four lanes.
#define X_UPSCALE 16777216.0f
#define X_DOWNSCALE 5.9604644775390625e-8f
#define COLS (FEW * PARTS)
#define TILES ((COLS + 7) / 8)  // of 8 columns
// x in local memory, X_STEP words a step. UNITS: [column][q][4 of k as bf16], otherwise [row][q][4 of k].

// Starts the copies of a chunk of k of 16 rows of w, those of c's columns from `col` on: zeros beyond a row's
// end or the last row. w: where the share of k begins in row 0.
void copy_chunk_of(__local uint* to, __global const uchar* w, int col, int chunk, int many,
                   int row_bytes, int bytes_left) {
  const int first_byte = chunk * (CHUNK_WORDS * 4);
  const int rows_left = many - col;
  const int left = bytes_left - first_byte;
  w += (long)col * row_bytes + first_byte;
  EACH(n, COPIES) {
    const int at = n * (32 / WARP_LANES) + LANE_OF((int)get_local_id(0), 0);
    const int r = at / (CHUNK_WORDS / 4);
    const int piece = at % (CHUNK_WORDS / 4);
    if (PIECES % 32 == 0 || at < PIECES)
      copy_async4((__local float*)(to + r * ROW_LD + piece * 4),
                  (__global const float*)(w + ((long)(r % OWN + r / OWN * many) * row_bytes + piece * 16)),
                  r % OWN < rows_left && piece * 16 < left ? 4 : 0);
  }
}

// x of the steps from k_begin to k_end into local memory; zeros beyond.
void keep_x(__local uint* x_tile, __global const x_element* x, int few, int k, int k_begin,
            int k_end) {
#pragma unroll 4
  for (int at = get_local_id(0); at < FEW * KC / 4; at += ITEMS) {
    const int i = at / (KC / 4);
    const int four = at % (KC / 4);
    const int first = k_begin + four * 4;
    float value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#if X_DEEP && XW == 4
    if (first < k_end) {
      const x_four all = *(__global const x_four*)(x + X_FROM(i, first));
      value[0] = DECODE(A_TYPE, all.x), value[1] = DECODE(A_TYPE, all.y);
      value[2] = DECODE(A_TYPE, all.z), value[3] = DECODE(A_TYPE, all.w);
    }
#else
    EACH(t, 4) if (first + t < k_end) value[t] = DECODE(A_TYPE, x[X_FROM(i, first + t)]);
#endif
    __local uint* own = x_tile + four / 4 * X_STEP;
#if UNITS
    EACH(t, 4) value[t] *= X_UPSCALE;
    EACH(part, PARTS) {
      uint bits[4];
      EACH(t, 4) {
        bits[t] = as_uint(value[t]) >> 16;
        value[t] -= as_float(bits[t] << 16);
      }
      // Integers come out of a word in the order 0, 2, 1, 3.
      const bool is_16_bit = B_TYPE == BF16 || B_TYPE == F16;
      __local uint* to = own + ((i * PARTS + part) * 4 + four % 4) * 2;
      to[0] = bits[0] | bits[is_16_bit ? 1 : 2] << 16;
      to[1] = bits[is_16_bit ? 2 : 1] | bits[3] << 16;
    }
#else
    EACH(t, 4) own[(i * 4 + four % 4) * 4 + t] = as_uint(value[t]);
#endif
  }
}

// The word at `byte` of a row, which is even.
uint word_at(__local const uint* row, int byte) {
  return byte % 4 == 0 ? row[byte / 4] : row[byte / 4] >> 16 | row[byte / 4 + 1] << 16;
}
float half_at(__local const uint* row, int byte) {
  return float_of_half((ushort)(row[byte / 4] >> byte % 4 * 8));
}

#if UNITS
// x·y + z of pairs of bf16. Some bits in the mantissas of two times 128.
#if CODE_PATH == 1
uint ABOVE_128_WITH(uint bits, uint mask) {
  uint pair;
  asm volatile("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(pair) : "r"(bits), "r"(mask), "r"(0x43004300u));
  return pair;
}
uint fma_pair(uint x, uint y, uint z) {
  uint pair;
  asm volatile("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(x), "r"(y), "r"(z));
  return pair;
}
#else
#define ABOVE_128_WITH(bits, mask) (((bits) & (mask)) | 0x43004300u)
// Exact here: small integers.
uint fma_pair(uint x, uint y, uint z) {
  const float low = as_float(x << 16) * as_float(y << 16) + as_float(z << 16);
  const uint high = 0xFFFF0000u;
  return as_uint(low) >> 16 |
         as_uint(as_float(x & high) * as_float(y & high) + as_float(z & high));
}
#endif
// Integers in the low bits of 16 as bf16: below the 2^7 of 128 there is room for seven bits. The eighth is the
// lowest of the exponent, which makes 256 of 128.
uint pair_of_integers(uint bits) {
#if IN_BYTES
  return fma_pair(ABOVE_128_WITH(bits, 0x00800080u), 0xBF80BF80u, ABOVE_128_WITH(bits, 0x007F007Fu));
#else
  return fma_pair(ABOVE_128_WITH(bits, 0x000F000Fu), 0x3F803F80u, 0xC308C308u);  // less 136
#endif
}
// Two halves as the upper bits of floats, or what these leave, which is exact.
uint pair_of_halves(uint halves, int rest) {
  const uint low = as_uint(float_of_half((ushort)halves));
  const uint high = as_uint(float_of_half((ushort)(halves >> 16)));
  if (rest == 0) return low >> 16 | (high & 0xFFFF0000u);
  return as_uint(as_float(low) - as_float(low & 0xFFFF0000u)) >> 16 |
         as_uint(as_float(high) - as_float(high & 0xFFFF0000u));
}
// A lane's fragment of step s of part `p` of the chunk: rows g and g + 8, which begin at `row`. rest=1: of
// f16, what bf16 lacks.
INLINED void decode_step(uint* a, __local const uint* row, int q, int p, int s, int rest) {
  EACH(h, 2) {
    __local const uint* own = row + h * (8 * ROW_LD);
#if B_TYPE == BF16 || B_TYPE == F16
    EACH(t, 2) {
      const uint word = own[s * 8 + q * 2 + t];
      a[h + 2 * t] = B_TYPE == F16 ? pair_of_halves(word, rest) : word;
    }
#else
    const uint word = B_TYPE == Q4_0   ? word_at(own + q, p * 18 + 2) >> s * 4
                      : B_TYPE == Q8_0 ? word_at(own + q, p * 34 + 2 + s * 16)
                                       : own[s * 4 + q];
    a[h] = pair_of_integers(word);
    a[h + 2] = pair_of_integers(word >> 8);
#endif
  }
}

// sum += a chunk of k; x: its first step's. Sums of matrix units go on for a block of 32, or for a chunk.
#if IN_BLOCKS
#define STEPS_OF_PART 2
#define PART_BYTES BLOCK_BYTES
#else
#define STEPS_OF_PART STEPS
#define PART_BYTES 0
#endif
INLINED void multiply_chunk(float (*sum)[WARP_LANES][4], __local const uint* own,
                            __local const uint* x) {
  const int lid = get_local_id(0);
  EACH(p, STEPS / STEPS_OF_PART) {
    float part[TILES][WARP_LANES][4];
    EACH(t, TILES) EACH_LANE(l) EACH(e, 4) part[t][l][e] = 0.0f;
    EACH(s, STEPS_OF_PART) {
      uint a[1 + (B_TYPE == F16)][WARP_LANES][4];
      uint b[WARP_LANES][4];
      EACH(rest, 1 + (B_TYPE == F16)) EACH_LANE(l) {
        const int lane = LANE_OF(lid, l);
        decode_step(a[rest][l], own + lane / 4 * ROW_LD, lane % 4, p, s, rest);
      }
      EACH(t, TILES) {
        EACH_LANE(l) {
          const int lane = LANE_OF(lid, l);
          uint2 four = (uint2)(0);
          if (t * 8 + lane / 4 < COLS)
            four = *(__local const uint2*)(x + (p * STEPS_OF_PART + s) * X_STEP + t * 64 + lane * 2);
          b[l][0] = four.x;
          b[l][1] = four.y;
        }
        EACH(rest, 1 + (B_TYPE == F16)) MULTIPLY(part[t], a[rest], b, 0);
      }
    }
    EACH_LANE(l) {
      __local const uint* row = own + LANE_OF(lid, l) / 4 * ROW_LD;
      float scale[2];
      EACH(h, 2)
        scale[h] = PART_BYTES > 0 ? half_at(row + h * (8 * ROW_LD), p * PART_BYTES) : 1.0f;
      EACH(t, TILES) EACH(e, 4) sum[t][l][e] = fma(scale[e / 2], part[t][l][e], sum[t][l][e]);
    }
  }
}
#define SUMS TILES
#define LANE_SUMS 4
// Where sum[t][l][e] of lane l belongs.
#define ROW_OF(lane, t, e) ((lane) / 4 + (e) / 2 * 8)
#define COL_OF(lane, t, e) ((t) * 8 + (lane) % 4 * 2 + (e) % 2)
#else
// 2^23 + byte i of x: no conversion.
#if CODE_PATH == 1
#define BYTE_ABOVE(x, i) byte_above(x, 0x7440 + (i))
float byte_above(uint x, uint selector) {
  uint bits;
  asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(bits) : "r"(x), "r"(0x4B000000u), "r"(selector));
  return as_float(bits);
}
#else
#define BYTE_ABOVE(x, i) as_float(0x4B000000u | ((x) >> 8 * (i) & 255u))
#endif
INLINED void multiply_chunk(float (*sum)[WARP_LANES][2], __local const uint* own,
                            __local const uint* x) {
  const int lid = get_local_id(0);
  EACH_LANE(l) {
    const int lane = LANE_OF(lid, l);
    const int q = lane % 4;
    EACH(s, STEPS) {
      float w[2][4];
      EACH(h, 2) {
        __local const uint* row = own + (lane / 4 + h * 8) * ROW_LD;
        const float scale = half_at(row, s / 2 * 20);
        const float least = half_at(row, s / 2 * 20 + 2);
        const uint word = row[s / 2 * 5 + 1 + q] >> s % 2 * 4 & 0x0F0F0F0Fu;
        EACH(t, 4) w[h][t] = fma(scale, BYTE_ABOVE(word, t) - 8388608.0f, least);
      }
      EACH(i, FEW) {
        const float4 four = *(__local const float4*)(x + s * X_STEP + (i * 4 + q) * 4);
        EACH(h, 2)
          sum[i][l][h] = fma(four.w, w[h][3], fma(four.z, w[h][2],
                         fma(four.y, w[h][1], fma(four.x, w[h][0], sum[i][l][h]))));
      }
    }
  }
}
#define SUMS FEW
#define LANE_SUMS 2
#define ROW_OF(lane, t, e) ((lane) / 4 + (e) * 8)
#define COL_OF(lane, t, e) ((t) * 4 + (lane) % 4)
#endif

// A sum of row i of x times row `row` of w from k_begin to k_end, from its scaled one.
float finished(float sum, __global const uchar* w, __global const x_element* x, int i, long row,
               int few, int k, int k_begin, int k_end, int row_bytes) {
#if UNITS
  if (isfinite(sum)) return sum * X_DOWNSCALE;
  __global const uchar* own = w + row * row_bytes;
  sum = 0.0f;
  for (int p = k_begin; p < k_end; ++p) {
#if IN_BLOCKS
    const float value = number_of_b(own, p);
#else
    const float value = DECODE(B_TYPE, ((__global const b_element*)own)[p]);
#endif
    sum = fma(DECODE(A_TYPE, x[X_FROM(i, p)]), value, sum);
  }
#endif
  return sum;
}
#endif  // STORED
