// Attention on matrix units that take tf32, as accurate as float32 (math 3xtf32): both products of
// a tile by splitting, as gemm_tensor.cl explains: x = big + small, three products, fragments of 16
// steps summed by float32 additions; q, k and v scaled by 2^13 first, weights (at most 1) not.
//
// A group of WARPS warps owns BQ query rows of one kv head, a warp MT fragments of 16; all walk over
// tiles of BK keys with online softmax. Scores and outputs stay in the fragments' registers: the
// lane that holds a score is the one that the second product needs the weight from, since any
// order of keys is right as long as weights and values share it (2q, 2q + 1 of 8 stand for the units'
// q, q + 4).
//
// One tile of keys and one of values are in local memory: the next keys arrive while values are
// multiplied and the other way round. Rows are 16 (q, k) or 4 (v) floats beyond a multiple of 32 (16)
// long, so that a warp's reads of 16 (8) bytes meet every bank once.
//
// A row of o that is not finite is computed again in plain float32: infinities, NaN, elements from
// 2^115 and scores from 2^102 on have no split form. Rows that see no key are zeros.

#if CODE_PATH == 1
#define ITEMS (32 * WARPS)
#else
#define ITEMS (WARPS)
#endif
#define BQ (WARPS * MT * 16)
#define DP ((D + 15) / 16 * 16)
#define LDK (DP % 32 == 16 ? DP : DP + 16)  // of q and k
#define LDV (DP + 4)
// Fragments of keys (of columns) that are multiplied at a time: chains of products that hide the
// units' latency from each other.
#define NJ (4 / MT)
#define UPSCALE 8192.0f                        // 2^13
#define DOWNSCALE 1.220703125e-4f              // 2^-13
#define DOWNSCALE2 1.490116119384765625e-8f    // 2^-26

#define LANES UNROLL_LANES for (int l = 0; l < WARP_LANES; ++l)
// Written out where lanes are work-items.
#define EVERY(i, count) UNROLL_LANES for (int i = 0; i < (count); ++i)

// The largest, or the sum, of the four lanes that share rows of a fragment.
#if CODE_PATH == 1
#define OF_FOUR(x, COMBINE)                         \
  {                                                 \
    x[0] = COMBINE(x[0], lane_xor(x[0], 1, 0));     \
    x[0] = COMBINE(x[0], lane_xor(x[0], 2, 0));     \
  }
#else
#define OF_FOUR(x, COMBINE)                                                            \
  for (int four = 0; four < WARP_LANES; four += 4) {                                   \
    const float all =                                                                  \
        COMBINE(COMBINE(x[four], x[four + 1]), COMBINE(x[four + 2], x[four + 3]));     \
    for (int l = four; l < four + 4; ++l) x[l] = all;                                  \
  }
#endif
#define PLUS(x, y) ((x) + (y))

// Starts the copy of rows × D floats into a tile of R rows: zeros beyond either.
#define COPY_ROWS(tile, LD, R, FROM, exist)                                                \
  for (int n = lid; n < (R) * (DP / VW); n += ITEMS) {                                     \
    const int row = n / (DP / VW);                                                         \
    const int d = n % (DP / VW) * VW;                                                      \
    CAT(copy_async, VW)((tile) + row * (LD) + d, FROM + d, row < (exist) && d < D ? VW : 0); \
  }

// part += a·b in three products over 16 steps, smallest first, for NJ fragments of b.
#define THREE_PRODUCTS(part, big_a, small_a, big_b, small_b)                                  \
  EVERY(s, 2) EVERY(j, NJ) EVERY(i, MT) MMA_TF32(part[i][j], small_a[i][s], big_b[j][s]);        \
  EVERY(s, 2) EVERY(j, NJ) EVERY(i, MT) MMA_TF32(part[i][j], big_a[i][s], small_b[j][s]);        \
  EVERY(s, 2) EVERY(j, NJ) EVERY(i, MT) MMA_TF32(part[i][j], big_a[i][s], big_b[j][s]);

// A row in plain float32 by one item.
void strict_row(__global const float* q, __global const float* k, __global const float* v,
                __global float* o, int keys, float scale2) {
  float high = -FLT_MAX;
  for (int pass = 0; pass < 2; ++pass) {
    float total = 0.0f;
    for (int d = 0; pass == 1 && d < D; ++d) o[d] = 0.0f;
    for (int key = 0; key < keys; ++key) {
      float score = 0.0f;
      for (int d = 0; d < D; ++d) score = fma(q[d] * scale2, k[(long)key * D + d], score);
      if (pass == 0) {
        high = fmax(high, score);
      } else {
        const float weight = fast_exp2(score - high);
        total += weight;
        for (int d = 0; d < D; ++d) o[d] = fma(weight, v[(long)key * D + d], o[d]);
      }
    }
    for (int d = 0; pass == 1 && d < D; ++d) o[d] *= 1.0f / total;
  }
}

#define SUMS(name, columns) float (*name)[(columns) / 8][WARP_LANES][4]
#define OF_ROWS(type, name) type (*name)[2][WARP_LANES]

// score = q·kᵀ of the warp's rows from first_row on and a tile of keys.
INLINED void multiply_keys(SUMS(score, BK), __local const float* q_tile,
                           __local const float* k_tile, int first_row) {
  const int lid = get_local_id(0);
  EVERY(i, MT) EVERY(j, BK / 8) LANES EVERY(r, 4) score[i][j][l][r] = 0.0f;
  _Pragma("unroll 1")
  for (int d0 = 0; d0 < DP; d0 += 16) {
    float big_a[MT][2][WARP_LANES][4], small_a[MT][2][WARP_LANES][4];
    EVERY(i, MT) LANES EVERY(h, 2) {
      const int lane = LANE_OF(lid, l);
      const float4 x = *(__local const float4*)(
          q_tile + (first_row + 16 * i + 8 * h + lane / 4) * LDK + d0 + 4 * (lane % 4));
      SPLIT_TF32(big_a[i][0][l][h], small_a[i][0][l][h], x.x * UPSCALE)
      SPLIT_TF32(big_a[i][0][l][2 + h], small_a[i][0][l][2 + h], x.y * UPSCALE)
      SPLIT_TF32(big_a[i][1][l][h], small_a[i][1][l][h], x.z * UPSCALE)
      SPLIT_TF32(big_a[i][1][l][2 + h], small_a[i][1][l][2 + h], x.w * UPSCALE)
    }
    EVERY(n, BK / 8 / NJ) {
      float big_b[NJ][2][WARP_LANES][2], small_b[NJ][2][WARP_LANES][2];
      float part[MT][NJ][WARP_LANES][4];
      EVERY(j, NJ) LANES {
        const int lane = LANE_OF(lid, l);
        const float4 x = *(__local const float4*)(
            k_tile + (8 * (n * NJ + j) + lane / 4) * LDK + d0 + 4 * (lane % 4));
        SPLIT_TF32(big_b[j][0][l][0], small_b[j][0][l][0], x.x * UPSCALE)
        SPLIT_TF32(big_b[j][0][l][1], small_b[j][0][l][1], x.y * UPSCALE)
        SPLIT_TF32(big_b[j][1][l][0], small_b[j][1][l][0], x.z * UPSCALE)
        SPLIT_TF32(big_b[j][1][l][1], small_b[j][1][l][1], x.w * UPSCALE)
      }
      EVERY(i, MT) EVERY(j, NJ) LANES EVERY(r, 4) part[i][j][l][r] = 0.0f;
      THREE_PRODUCTS(part, big_a, small_a, big_b, small_b)
      EVERY(i, MT) EVERY(j, NJ) LANES EVERY(r, 4) score[i][n * NJ + j][l][r] += part[i][j][l][r];
    }
  }
}

// Scores become weights, with -inf for what a row does not see where the tile is_edge; what was added before
// shrinks.
INLINED void weigh(SUMS(score, BK), SUMS(sum, DP), OF_ROWS(float, high), OF_ROWS(float, total),
                   OF_ROWS(int, sees), int key0, bool is_edge, float scale2) {
  const int lid = get_local_id(0);
  EVERY(i, MT) EVERY(h, 2) {
    float top[WARP_LANES];
    LANES {
      const int lane = LANE_OF(lid, l);
      top[l] = high[i][h][l];
      EVERY(j, BK / 8) EVERY(r, 2) {
        const float x = score[i][j][l][2 * h + r] * DOWNSCALE2 * scale2;
        const int key = key0 + 8 * j + lane % 4 * 2 + r;
        score[i][j][l][2 * h + r] = is_edge && key >= sees[i][h][l] ? -INFINITY : x;
        top[l] = fmax(top[l], score[i][j][l][2 * h + r]);
      }
    }
    OF_FOUR(top, fmax)
    LANES {
      const float shrink = fast_exp2(high[i][h][l] - top[l]);
      high[i][h][l] = top[l];
      total[i][h][l] *= shrink;
      EVERY(j, DP / 8) EVERY(r, 2) sum[i][j][l][2 * h + r] *= shrink;
      EVERY(j, BK / 8) EVERY(r, 2) {
        score[i][j][l][2 * h + r] = fast_exp2(score[i][j][l][2 * h + r] - top[l]);
        total[i][h][l] += score[i][j][l][2 * h + r];
      }
    }
  }
}

// sum += weights·v of a tile of values.
INLINED void add_values(SUMS(sum, DP), SUMS(score, BK), __local const float* v_tile) {
  const int lid = get_local_id(0);
  EVERY(c, BK / 16) {
    float big_a[MT][2][WARP_LANES][4], small_a[MT][2][WARP_LANES][4];
    EVERY(i, MT) EVERY(s, 2) LANES EVERY(h, 2) EVERY(r, 2)
      SPLIT_TF32(big_a[i][s][l][2 * r + h], small_a[i][s][l][2 * r + h],
            score[i][2 * c + s][l][2 * h + r])
    EVERY(n, (DP / 8 + NJ - 1) / NJ) {
      float big_b[NJ][2][WARP_LANES][2], small_b[NJ][2][WARP_LANES][2];
      float part[MT][NJ][WARP_LANES][4];
      EVERY(j, NJ / 2) LANES EVERY(s, 2) EVERY(t, 2) {
        // The last four fragments of an odd number of pairs: the others' values once more.
        const int pair = min(n * (NJ / 2) + j, DP / 16 - 1);
        const int lane = LANE_OF(lid, l);
        const float2 x = *(__local const float2*)(
            v_tile + (16 * c + 8 * s + lane % 4 * 2 + t) * LDV + 16 * pair + lane / 4 * 2);
        SPLIT_TF32(big_b[2 * j][s][l][t], small_b[2 * j][s][l][t], x.x * UPSCALE)
        SPLIT_TF32(big_b[2 * j + 1][s][l][t], small_b[2 * j + 1][s][l][t], x.y * UPSCALE)
      }
      EVERY(i, MT) EVERY(j, NJ) LANES EVERY(r, 4) part[i][j][l][r] = 0.0f;
      THREE_PRODUCTS(part, big_a, small_a, big_b, small_b)
      EVERY(j, NJ) {
        if (n * NJ + j < DP / 8)
          EVERY(i, MT) LANES EVERY(r, 4) sum[i][n * NJ + j][l][r] += part[i][j][l][r];
      }
    }
  }
}

// Rows of o; is_wrong: those that are not finite.
INLINED void put_rows(__global float* o, SUMS(sum, DP), OF_ROWS(float, total), OF_ROWS(int, sees),
                      __local int* is_wrong, const Place at, int first_row, int group, int q_len) {
  const int lid = get_local_id(0);
  EVERY(i, MT) EVERY(h, 2) {
    OF_FOUR(total[i][h], PLUS)
    LANES {
      const int q4 = LANE_OF(lid, l) % 4 * 4;
      const int row = first_row + 16 * i + 8 * h + LANE_OF(lid, l) / 4;
      if (at.row0 + row < at.rows) {
        __global float* to = o + row_start(at.row0 + row, group, q_len, at.head0);
        const float factor = DOWNSCALE / total[i][h][l];
        float not_finite = 0.0f;
        EVERY(pair, DP / 16) {
          // Columns 4q, 4q + 1, 4q + 2, 4q + 3 of 16.
          float value[4];
          EVERY(c, 4) value[c] = sum[i][2 * pair + c % 2][l][2 * h + c / 2] * factor;
          EVERY(c, 4) {
            if (sees[i][h][l] == 0) value[c] = 0.0f;
            not_finite = fma(value[c], 0.0f, not_finite);
          }
#if VW == 4
          if (16 * pair + q4 < D)
            *(__global float4*)(to + 16 * pair + q4) =
                (float4)(value[0], value[1], value[2], value[3]);
#else
          EVERY(c, 4) {
            if (16 * pair + q4 + c < D) to[16 * pair + q4 + c] = value[c];
          }
#endif
        }
        if (not_finite != 0.0f) is_wrong[row] = 1;
      }
    }
  }
}

// One group per (batch, kv head, block of rows).
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void tensor_tiles(
    __global const float* restrict q, __global const float* restrict k,
    __global const float* restrict v, __global float* restrict o, int group, int q_len, int kv_len,
    int heads, int row_blocks, int causal, float scale2) {
  __local float q_tile[BQ * LDK] __attribute__((aligned(16)));
  __local float k_tile[BK * LDK] __attribute__((aligned(16)));
  __local float v_tile[BK * LDV] __attribute__((aligned(16)));
  __local int is_wrong[BQ];

  const int lid = get_local_id(0);
  const int first_row = WARP_OF(lid) * MT * 16;  // of the warp within the block
  // The last blocks see most keys when causal: those of all heads start first. Otherwise the blocks
  // of a head run together, for the cache.
  const int unit = get_group_id(0);
  const int head = causal ? unit % heads : unit / row_blocks;
  const int block = row_blocks - 1 - (causal ? unit / heads : unit % row_blocks);
  const Place at = place_of(head, block * BQ, BQ, 0, kv_len, group, q_len, kv_len, causal, 0);
  const int end_key = at.end_key;
  k += (long)head * kv_len * D;
  v += (long)head * kv_len * D;

  COPY_ROWS(q_tile, LDK, BQ,
            q + row_start(min(at.row0 + row, at.rows - 1), group, q_len, at.head0), BQ)
  COPY_ROWS(k_tile, LDK, BK, k + (long)row * D, end_key)
  copies_commit();
  COPY_ROWS(v_tile, LDV, BK, v + (long)row * D, end_key)
  copies_commit();
  for (int row = lid; row < BQ; row += ITEMS) is_wrong[row] = 0;

  // Values of rows g and g + 8 of each fragment; a row past the end repeats the last one and is not stored.
  int sees[MT][2][WARP_LANES];
  float high[MT][2][WARP_LANES];
  float total[MT][2][WARP_LANES];
  EVERY(i, MT) EVERY(h, 2) LANES {
    const int row = at.row0 + first_row + 16 * i + 8 * h + LANE_OF(lid, l) / 4;
    sees[i][h][l] = visible_keys(min(row, at.rows - 1), group, q_len, kv_len, causal);
    high[i][h][l] = -FLT_MAX;
    total[i][h][l] = 0.0f;
  }
  float sum[MT][DP / 8][WARP_LANES][4];
  EVERY(i, MT) EVERY(j, DP / 8) LANES EVERY(r, 4) sum[i][j][l][r] = 0.0f;

  for (int key0 = 0; key0 < end_key; key0 += BK) {
    copies_wait(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    float score[MT][BK / 8][WARP_LANES][4];
    multiply_keys(score, q_tile, k_tile, first_row);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (key0 + BK < end_key) {
      COPY_ROWS(k_tile, LDK, BK, k + (long)(key0 + BK + row) * D, end_key - key0 - BK)
    }
    copies_commit();

    weigh(score, sum, high, total, sees, key0, at.seen_by_all < key0 + BK, scale2);

    copies_wait(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    add_values(sum, score, v_tile);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (key0 + BK < end_key) {
      COPY_ROWS(v_tile, LDV, BK, v + (long)(key0 + BK + row) * D, end_key - key0 - BK)
    }
    copies_commit();
  }
  copies_wait(0);

  put_rows(o, sum, total, sees, is_wrong, at, first_row, group, q_len);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  for (int row = lid; row < BQ; row += ITEMS) {
    if (is_wrong[row] == 0) continue;
    const int r = at.row0 + row;
    const long start = row_start(r, group, q_len, at.head0);
    strict_row(q + start, k, v, o + start,
               visible_keys(r, group, q_len, kv_len, causal), scale2);
  }
}
