// What differs between operands in attention_tensor.cl, which follows: rows of tiles in local memory, both
// products of a tile, and where a lane's sums of o belong.

#define SUMS(name, columns) float (*name)[(columns) / 8][WARP_LANES][4]
#define OF_ROWS(type, name) type (*name)[2][WARP_LANES]
#define DP ((D + 15) / 16 * 16)

#if TYPE == F32
// Float32 operands on units that take tf32: both products by splitting, as gemm_tensor.cl explains:
// x = big + small, three products, fragments of 16 steps summed by float32 additions; q, k and v
// scaled by 2^13 first, weights (at most 1) not. Any order of keys is right as long as weights and
// values share it (2q, 2q + 1 of 8 stand for the units' q, q + 4).
// Rows are 16 (q, k) or 4 (v) floats beyond a multiple of 32 (16) long, so that a warp's reads of 16
// (8) bytes meet every bank once.

#define BYTES 4
#define SIGN_BITS 0x80000000u
#define ROW_K (4 * (DP % 32 == 16 ? DP : DP + 16))
#define ROW_V (4 * (DP + 4))
// Fragments of keys (of columns) that are multiplied at a time: chains of products that hide the
// units' latency from each other.
#define NJ (4 / MT)
#define SCORE_UNIT DOWNSCALE
#define V_UNIT 1.220703125e-4f  // 2^-13
#define QUERIES(name) const int name = 0;
#define LOAD_QUERIES(name, q_tile, first_row) {}

// Columns 4q, 4q + 1, 4q + 2, 4q + 3 of 16.
#define OUT_SUM(sum, pair, l, h, c) (sum)[2 * (pair) + (c) % 2][l][2 * (h) + (c) / 2]
#if VW == 4
#define PUT_FOUR(to, value, q)                                                                  \
  if (16 * pair + 4 * (q) < D)                                                                  \
    *(__global float4*)((to) + 4 * (q)) = (float4)(value[0], value[1], value[2], value[3]);
#else
#define PUT_FOUR(to, value, q) \
  EVERY(c, 4) if (16 * pair + 4 * (q) + c < D) (to)[4 * (q) + c] = value[c];
#endif

// part += a·b in three products over 16 steps, smallest first, for NJ fragments of b.
#define THREE_PRODUCTS(part, big_a, small_a, big_b, small_b)                                  \
  EVERY(s, 2) EVERY(j, NJ) EVERY(i, MT) MMA_TF32(part[i][j], small_a[i][s], big_b[j][s]);        \
  EVERY(s, 2) EVERY(j, NJ) EVERY(i, MT) MMA_TF32(part[i][j], big_a[i][s], small_b[j][s]);        \
  EVERY(s, 2) EVERY(j, NJ) EVERY(i, MT) MMA_TF32(part[i][j], big_a[i][s], big_b[j][s]);

// score = q·kᵀ of the warp's rows from first_row on and a tile of keys.
INLINED void multiply_keys(SUMS(score, BK), int unused, __local const uchar* q_tile,
                           __local const uchar* k_tile, int first_row) {
  const int lid = get_local_id(0);
  EVERY(i, MT) EVERY(j, BK / 8) EACH_LANE(l) EVERY(r, 4) score[i][j][l][r] = 0.0f;
  _Pragma("unroll 1")
  for (int d0 = 0; d0 < DP; d0 += 16) {
    float big_a[MT][2][WARP_LANES][4], small_a[MT][2][WARP_LANES][4];
    EVERY(i, MT) EACH_LANE(l) EVERY(h, 2) {
      const int lane = LANE_OF(lid, l);
      float x[4];
      GET4(x, __local, q_tile + (first_row + 16 * i + 8 * h + lane / 4) * ROW_K +
                           (d0 + 4 * (lane % 4)) * 4);
      EVERY(e, 4)
        SPLIT_TF32(big_a[i][e / 2][l][e % 2 * 2 + h], small_a[i][e / 2][l][e % 2 * 2 + h],
                   x[e] * UPSCALE)
    }
    EVERY(n, BK / 8 / NJ) {
      float big_b[NJ][2][WARP_LANES][2], small_b[NJ][2][WARP_LANES][2];
      float part[MT][NJ][WARP_LANES][4];
      EVERY(j, NJ) EACH_LANE(l) {
        const int lane = LANE_OF(lid, l);
        float x[4];
        GET4(x, __local,
             k_tile + (8 * (n * NJ + j) + lane / 4) * ROW_K + (d0 + 4 * (lane % 4)) * 4);
        EVERY(e, 4)
          SPLIT_TF32(big_b[j][e / 2][l][e % 2], small_b[j][e / 2][l][e % 2], x[e] * UPSCALE)
      }
      EVERY(i, MT) EVERY(j, NJ) EACH_LANE(l) EVERY(r, 4) part[i][j][l][r] = 0.0f;
      THREE_PRODUCTS(part, big_a, small_a, big_b, small_b)
      EVERY(i, MT) EVERY(j, NJ) EACH_LANE(l) EVERY(r, 4) score[i][n * NJ + j][l][r] += part[i][j][l][r];
    }
  }
}

// sum += weights·v of a tile of values.
INLINED void add_values(SUMS(sum, DP), SUMS(score, BK), __local const uchar* v_tile) {
  const int lid = get_local_id(0);
  EVERY(c, BK / 16) {
    float big_a[MT][2][WARP_LANES][4], small_a[MT][2][WARP_LANES][4];
    EVERY(i, MT) EVERY(s, 2) EACH_LANE(l) EVERY(h, 2) EVERY(r, 2)
      SPLIT_TF32(big_a[i][s][l][2 * r + h], small_a[i][s][l][2 * r + h],
            score[i][2 * c + s][l][2 * h + r])
    EVERY(n, (DP / 8 + NJ - 1) / NJ) {
      float big_b[NJ][2][WARP_LANES][2], small_b[NJ][2][WARP_LANES][2];
      float part[MT][NJ][WARP_LANES][4];
      EVERY(j, NJ / 2) EACH_LANE(l) EVERY(s, 2) EVERY(t, 2) {
        // The last four fragments of an odd number of pairs: the others' values once more.
        const int pair = min(n * (NJ / 2) + j, DP / 16 - 1);
        const int lane = LANE_OF(lid, l);
        const float2 x = *(__local const float2*)(
            v_tile + (16 * c + 8 * s + lane % 4 * 2 + t) * ROW_V + (16 * pair + lane / 4 * 2) * 4);
        SPLIT_TF32(big_b[2 * j][s][l][t], small_b[2 * j][s][l][t], x.x * UPSCALE)
        SPLIT_TF32(big_b[2 * j + 1][s][l][t], small_b[2 * j + 1][s][l][t], x.y * UPSCALE)
      }
      EVERY(i, MT) EVERY(j, NJ) EACH_LANE(l) EVERY(r, 4) part[i][j][l][r] = 0.0f;
      THREE_PRODUCTS(part, big_a, small_a, big_b, small_b)
      EVERY(j, NJ) {
        if (n * NJ + j < DP / 8)
          EVERY(i, MT) EACH_LANE(l) EVERY(r, 4) sum[i][n * NJ + j][l][r] += part[i][j][l][r];
      }
    }
  }
}

#else
// Float16 or bfloat16 operands (matrix_units.cl has the units).
// Weights are rounded to that format in registers: two neighbouring tiles of 8 scores are the 16 steps
// of k of a fragment of weights. Rows in local memory are 16 bytes longer than an even number of
// pieces of 16 bytes, so that the 8 rows that ldmatrix reads at a time meet every bank once.

#define BYTES 2
#define SIGN_BITS 0x80008000u
#define ROW_K (2 * DP + 16)
#define ROW_V ROW_K
#define SCORE_UNIT 1.0f
#define V_UNIT 1.0f

// Where lane `lane` finds its row of a fragment of queries, of two of keys, of two of values (16 steps
// and columns from 16·s or 16·n on).
#define Q_PLACE(lane, i, s) ((first_row + 16 * (i) + (lane) % 16) * ROW_K + (2 * (s) + (lane) / 16) * 16)
#define K_PLACE(lane, n, s) \
  ((16 * (n) + (lane) % 8 + (lane) / 16 * 8) * ROW_K + (2 * (s) + (lane) / 8 % 2) * 16)
#define V_PLACE(lane, n, s) ((16 * (s) + (lane) % 16) * ROW_V + (2 * (n) + (lane) / 16) * 16)

// Queries stay in registers where these have room for them beside scores and sums.
#define Q_RESIDENT (MT * (DP / 4 + BK / 2 + DP / 2) <= 176)
#if Q_RESIDENT
#define QUERIES(name) uint name[MT][DP / 16][WARP_LANES][4];
#define LOAD_QUERIES(name, q_tile, first_row)                                                   \
  {                                                                                             \
    const int lane = LANE_OF(lid, 0);                                                           \
    EVERY(i, MT) EVERY(s, DP / 16) LOAD_MATRICES(STRAIGHT, name[i][s], q_tile, Q_PLACE, i, s);  \
  }
#define QUERIES_PARAM uint (*queries)[DP / 16][WARP_LANES][4]
#else
#define QUERIES(name) const int name = 0;
#define LOAD_QUERIES(name, q_tile, first_row) {}
#define QUERIES_PARAM int unused
#endif

// Columns 2q, 2q + 1, 2q + 8, 2q + 9 of 16.
#define OUT_SUM(sum, pair, l, h, c) (sum)[2 * (pair) + (c) / 2][l][2 * (h) + (c) % 2]
#if PIECE >= 4
#define PUT_FOUR(to, value, q)                                              \
  EVERY(j, 2) if (16 * pair + 8 * j + 2 * (q) < D) {                        \
    uint two;                                                               \
    PACK_INTO(two, value[2 * j], value[2 * j + 1]);                         \
    *(__global uint*)((to) + 8 * j + 2 * (q)) = two;                        \
  }
#else
#define PUT_FOUR(to, value, q)                                              \
  EVERY(c, 4) if (16 * pair + c / 2 * 8 + 2 * (q) + c % 2 < D)              \
    STORE_ONE(value[c], to, c / 2 * 8 + 2 * (q) + c % 2);
#endif

// score = q·kᵀ of the warp's rows from first_row on and a tile of keys.
INLINED void multiply_keys(SUMS(score, BK), QUERIES_PARAM, __local const uchar* q_tile,
                           __local const uchar* k_tile, int first_row) {
  const int lid = get_local_id(0);
  const int lane = LANE_OF(lid, 0);
  EVERY(i, MT) EVERY(j, BK / 8) EACH_LANE(l) EVERY(r, 4) score[i][j][l][r] = 0.0f;
  EVERY(s, DP / 16) {
#if Q_RESIDENT
#define A_OF(i) queries[i][s]
#else
#define A_OF(i) a[i]
    uint a[MT][WARP_LANES][4];
    EVERY(i, MT) LOAD_MATRICES(STRAIGHT, a[i], q_tile, Q_PLACE, i, s);
#endif
    EVERY(n, BK / 16) {
      uint b[WARP_LANES][4];
      LOAD_MATRICES(STRAIGHT, b, k_tile, K_PLACE, n, s);
      EVERY(i, MT) EVERY(j, 2) MULTIPLY(score[i][2 * n + j], A_OF(i), b, j);
    }
  }
}

// sum += weights·v of a tile of values.
INLINED void add_values(SUMS(sum, DP), SUMS(score, BK), __local const uchar* v_tile) {
  const int lid = get_local_id(0);
  const int lane = LANE_OF(lid, 0);
  EVERY(s, BK / 16) {
    uint a[MT][WARP_LANES][4];
    EVERY(i, MT) EACH_LANE(l) EVERY(r, 4)
      PACK_INTO(a[i][l][r], score[i][2 * s + r / 2][l][r % 2 * 2],
                score[i][2 * s + r / 2][l][r % 2 * 2 + 1]);
    EVERY(n, DP / 16) {
      uint b[WARP_LANES][4];
      LOAD_MATRICES(TRANSPOSED, b, v_tile, V_PLACE, n, s);
      EVERY(i, MT) EVERY(j, 2) MULTIPLY(sum[i][2 * n + j], a[i], b, j);
    }
  }
}
#endif
