// Attention on matrix units with online softmax: the products of a tile in 16-bit floats (maths f16, bf16)
// or, as accurate as float32, of tf32 numbers (math 3xtf32). TYPE: F16, BF16 or F32. Only the fragments
// differ: attention_fragments.cl.
//
// A group of WARPS warps owns BQ query rows of one kv head, a warp MT fragments of 16; all walk over
// tiles of BK keys. Scores and outputs stay in the fragments' registers: the lane that holds a score
// is the one that the second product needs the weight from (FlashAttention-2, arXiv 2307.08691).
//
// STAGES = 1: one tile of keys and one of values are in local memory, and the next keys arrive while
// values are multiplied and the other way round. More: a ring of so many tiles of both, one barrier a tile.
//
// A row of o with an element beyond TYPE's range is computed again in plain float32. Infinities and NaN
// that a query may not see need it, and for tf32 elements from 2^115 and scores from 2^102 on, which
// have no split form. Rows that see no key are zeros.

#if CODE_PATH == 1
#define ITEMS (32 * WARPS)
#else
#define ITEMS (WARPS)
#endif
#define BQ (WARPS * MT * 16)
#define ROW_BYTES (D * BYTES)  // of a row in memory
#define TILE_BYTES (BK * (ROW_K + ROW_V))
#define K_TILE(slot) (ring + (slot) * TILE_BYTES)
#define V_TILE(slot) (K_TILE(slot) + BK * ROW_K)

// Starts the copy of rows into a tile of R rows, LD bytes apart: zeros beyond the first `exist` rows and
// beyond a row's end. PIECE bytes at a time, to which rows are aligned; START(row, later): where row
// `row + later` begins, the latter a constant.
#if PIECE == 2
#define COPY_PIECE(to, from, exists) \
  *(__local ushort*)(to) = (exists) ? *(__global const ushort*)(from) : 0
#else
#define COPY_PIECE(to, from, exists) \
  CAT(copy_async, VW)((__local float*)(to), (__global const float*)(from), (exists) ? VW : 0)
#endif
#define ROW_PIECES (DP * BYTES / PIECE)
#define EVENLY (ITEMS % ROW_PIECES == 0)
#define COPY_ROWS(tile, LD, R, START, exist)                                                    \
  EVERY(copy, ((R)*ROW_PIECES + ITEMS - 1) / ITEMS) {                                           \
    const int n = EVENLY ? lid : copy * ITEMS + lid;                                            \
    const int later = EVENLY ? copy * (ITEMS / ROW_PIECES) : 0;                                 \
    const int row = n / ROW_PIECES;                                                             \
    const int byte = n % ROW_PIECES * PIECE;                                                    \
    if ((R)*ROW_PIECES % ITEMS == 0 || row + later < (R))                                       \
      COPY_PIECE((tile) + later * (LD) + (row * (LD) + byte), START(row, later) + byte,         \
                 row + later < (exist) && byte < ROW_BYTES);                                    \
  }
#define START_QUERY(row, later) \
  (q + row_start(min(at.row0 + (row) + (later), at.rows - 1), group, q_len, at.head0) * BYTES)
#define START_KEY(row, later) (tile_at + (long)(row)*ROW_BYTES + (later)*ROW_BYTES)
#define COPY_TILE(tile, LD, from, key0)                                      \
  {                                                                          \
    __global const uchar* tile_at = (from) + (long)(key0)*ROW_BYTES;         \
    COPY_ROWS(tile, LD, BK, START_KEY, end_key - (key0))                     \
  }
#define COPY_KEYS(slot, key0) COPY_TILE(K_TILE(slot), ROW_K, k, key0)
#define COPY_VALUES(slot, key0) COPY_TILE(V_TILE(slot), ROW_V, v, key0)

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

// Scores become weights, 2^(factor·(score - largest)), with -inf for what a row does not see where the
// tile is_edge; what was added before shrinks. factor is not negative.
INLINED void weigh(SUMS(score, BK), SUMS(sum, DP), OF_ROWS(float, high), OF_ROWS(float, total),
                   OF_ROWS(int, sees), int key0, bool is_edge, float factor) {
  const int lid = get_local_id(0);
  EVERY(i, MT) EVERY(h, 2) {
    if (is_edge) {
      EACH_LANE(l) {
        const int end = sees[i][h][l] - key0 - LANE_OF(lid, l) % 4 * 2;
        EVERY(j, BK / 8) EVERY(r, 2)
          if (8 * j + r >= end) score[i][j][l][2 * h + r] = -INFINITY;
      }
    }
    float top[WARP_LANES];
    EACH_LANE(l) {
      top[l] = high[i][h][l];
      EVERY(j, BK / 8) EVERY(r, 2) top[l] = fmax(top[l], score[i][j][l][2 * h + r]);
    }
    OF_FOUR(top, fmax)
    EACH_LANE(l) {
      const float shrink = fast_exp2((high[i][h][l] - top[l]) * factor);
      const float base = top[l] * factor;
      high[i][h][l] = top[l];
      EVERY(j, DP / 8) EVERY(r, 2) sum[i][j][l][2 * h + r] *= shrink;
      float weights = total[i][h][l] * shrink;
      EVERY(j, BK / 8) EVERY(r, 2) {
        score[i][j][l][2 * h + r] = fast_exp2(fma(score[i][j][l][2 * h + r], factor, -base));
        weights += score[i][j][l][2 * h + r];
      }
      total[i][h][l] = weights;
    }
  }
}

// Rows of o; is_wrong: those with an element beyond the format's range.
INLINED void put_rows(__global element* o, SUMS(sum, DP), OF_ROWS(float, total), OF_ROWS(int, sees),
                      __local int* is_wrong, const Place at, int first_row, int group, int q_len) {
  const int lid = get_local_id(0);
  EVERY(i, MT) EVERY(h, 2) {
    OF_FOUR(total[i][h], PLUS)
    EACH_LANE(l) {
      const int q = LANE_OF(lid, l) % 4;
      const int row = first_row + 16 * i + 8 * h + LANE_OF(lid, l) / 4;
      if (at.row0 + row < at.rows) {
        __global element* to = o + row_start(at.row0 + row, group, q_len, at.head0);
        const float factor = V_UNIT / total[i][h][l];
        EVERY(pair, DP / 16) {
          float value[4];
          bool wrong = false;
          EVERY(c, 4) {
            value[c] = sees[i][h][l] == 0 ? 0.0f : OUT_SUM(sum[i], pair, l, h, c) * factor;
            wrong = wrong || !(fabs(value[c]) <= LARGEST);
          }
          if (wrong) is_wrong[row] = 1;
          PUT_FOUR(to + 16 * pair, value, q)
        }
      }
    }
  }
}

// One group per (batch, kv head, block of rows).
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void tensor_tiles(
    __global const uchar* restrict q, __global const uchar* restrict k,
    __global const uchar* restrict v, __global element* restrict o, int group, int q_len, int kv_len,
    int heads, int row_blocks, int causal, float scale2) {
  __local uchar q_tile[BQ * ROW_K] __attribute__((aligned(16)));
  __local uchar ring[STAGES * TILE_BYTES] __attribute__((aligned(16)));
  __local int is_wrong[BQ];

  const int lid = get_local_id(0) & (ITEMS - 1);
  const int first_row = WARP_OF(lid) * MT * 16;  // of the warp within the block
  // The last blocks see most keys when causal: those of all heads start first. Otherwise the blocks
  // of a head run together, for the cache.
  const int unit = get_group_id(0);
  const int head = causal ? unit % heads : unit / row_blocks;
  const int block = row_blocks - 1 - (causal ? unit / heads : unit % row_blocks);
  const Place at = place_of(head, block * BQ, BQ, 0, kv_len, group, q_len, kv_len, causal, 0);
  const int end_key = at.end_key;
  k += (long)head * kv_len * ROW_BYTES;
  v += (long)head * kv_len * ROW_BYTES;

  COPY_ROWS(q_tile, ROW_K, BQ, START_QUERY, BQ)
  COPY_KEYS(0, 0)
#if STAGES == 1
  copies_commit();
#endif
  COPY_VALUES(0, 0)
  copies_commit();
  for (int stage = 1; stage < STAGES - 1; ++stage) {
    COPY_KEYS(stage, stage * BK)
    COPY_VALUES(stage, stage * BK)
    copies_commit();
  }
  for (int row = lid; row < BQ; row += ITEMS) is_wrong[row] = 0;

  // Values of rows g and g + 8 of each fragment; a row past the end repeats the last one and is not stored.
  int sees[MT][2][WARP_LANES];
  float high[MT][2][WARP_LANES];
  float total[MT][2][WARP_LANES];
  EVERY(i, MT) EVERY(h, 2) EACH_LANE(l) {
    const int row = at.row0 + first_row + 16 * i + 8 * h + LANE_OF(lid, l) / 4;
    sees[i][h][l] = visible_keys(min(row, at.rows - 1), group, q_len, kv_len, causal);
    high[i][h][l] = -FLT_MAX;
    total[i][h][l] = 0.0f;
  }
  float sum[MT][DP / 8][WARP_LANES][4];
  EVERY(i, MT) EVERY(j, DP / 8) EACH_LANE(l) EVERY(r, 4) sum[i][j][l][r] = 0.0f;
  // The largest score belongs to the largest product: a negative scale becomes the queries' sign.
  if (scale2 < 0.0f) {
    copies_wait(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = lid; n < BQ * ROW_K / 4; n += ITEMS) ((__local uint*)q_tile)[n] ^= SIGN_BITS;
  }
  const float factor = fabs(scale2) * SCORE_UNIT;
  QUERIES(queries)

  int slot = 0;
  for (int key0 = 0; key0 < end_key; key0 += BK) {
    copies_wait(STAGES == 1 ? 1 : STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (key0 == 0) LOAD_QUERIES(queries, q_tile, first_row)
#if STAGES > 1
    const int last_slot = slot == 0 ? STAGES - 1 : slot - 1;
    const int next_key = key0 + (STAGES - 1) * BK;
    if (next_key < end_key) {
      COPY_KEYS(last_slot, next_key)
      COPY_VALUES(last_slot, next_key)
    }
    copies_commit();
#endif
    float score[MT][BK / 8][WARP_LANES][4];
    multiply_keys(score, queries, q_tile, K_TILE(slot), first_row);
#if STAGES == 1
    barrier(CLK_LOCAL_MEM_FENCE);
    if (key0 + BK < end_key) {
      COPY_KEYS(0, key0 + BK)
    }
    copies_commit();
#endif
    weigh(score, sum, high, total, sees, key0, at.seen_by_all < key0 + BK, factor);
#if STAGES == 1
    copies_wait(1);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    add_values(sum, score, V_TILE(slot));
#if STAGES == 1
    barrier(CLK_LOCAL_MEM_FENCE);
    if (key0 + BK < end_key) {
      COPY_VALUES(0, key0 + BK)
    }
    copies_commit();
#else
    slot = slot + 1 == STAGES ? 0 : slot + 1;
#endif
  }
  copies_wait(0);

  put_rows(o, sum, total, sees, is_wrong, at, first_row, group, q_len);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  for (int row = lid; row < BQ; row += ITEMS) {
    if (is_wrong[row] == 0) continue;
    const int r = at.row0 + row;
    const long start = row_start(r, group, q_len, at.head0);
    strict_row((__global const element*)q + start, (__global const element*)k,
               (__global const element*)v, o + start,
               visible_keys(r, group, q_len, kv_len, causal), scale2);
  }
}
