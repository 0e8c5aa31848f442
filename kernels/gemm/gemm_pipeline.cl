// c = alpha·op(a)·op(b) + beta·c0 with a pipeline of tiles in local memory, for GPUs. The copies of
// tiles t+1 … t+STAGES-1 are under way while tile t is multiplied (code_paths.cl), and an item's operands of
// one step of k while those of the step before are; one barrier a tile.
//
// A group of WM × WN × WK warps of 32 items owns BM × BN elements of c; a warp owns LM·TM rows ×
// LN·TN columns of 1/WK of each tile's k, an item TM × TN results, all in registers. An item reads
// TM + TN floats of local memory per TM·TN multiply-adds: with 8 × 16 three quarters of local memory's
// rate (128 bytes a clock for 128 multiply-adds), with 8 × 8 all of it. WK > 1 gives small
// products, which have few tiles, more warps without smaller items; they add up in local memory.
//
// Both tiles are in local memory with rows along m (n), so that an item reads its results' operands
// 16 bytes at a time: they come in fours, and neighbouring items read neighbouring fours.
//   A_DEEP=0, B_DEEP=0 (a transposed, b not): rows of the matrix are rows of the tile; straight
//   copies.
//   A_DEEP=1, B_DEEP=1 (a not transposed, b transposed): the copies transpose the tile, one float each. A
//   warp copies 4 rows × 8 steps of k: whole 32-byte sectors of memory, and with rows of the tile 4
//   floats longer than it is wide, 32 different banks. (Tiles left as they are, read in vectors
//   along k, lost 8 % on an H200.) It still costs 4 to 12 % there, so that large products
//   transpose operands first (gemm_work.cl).
// Groups walk c in bands of RASTER row tiles, so that those that run together share a's and b's tiles
// in the L2 cache.
//   SPLIT=1: a group takes one of `splits` shares of k and writes its sums to `parts`.
//   SPLIT=2: a group adds up, in order, what the groups of its tile have written: the launch after.
//   SPLIT=3: both in one launch: the last group of a tile adds (6 us saved on an H200).

#define MN_ITEMS (32 * WM * WN)
#define ITEMS (MN_ITEMS * WK)
// Steps of k in a tile that a warp takes; even.
#define STEPS (BK / WK)
#define LN (32 / LM)
#define BM (WM * LM * TM)
#define BN (WN * LN * TN)
// Row length of a tile in local memory.
#define A_LD (A_DEEP ? BM + 4 : BM)
#define B_LD (B_DEEP ? BN + 4 : BN)
#define A_TILE (BK * A_LD)
#define B_TILE (BK * B_LD)

// Row of c, within the warp's, of an item's i-th result; the same for columns.
#define ROW_AT(i) ((i) / 4 * 4 * LM + lane_m * 4 + (i) % 4)
#define COL_AT(j) ((j) / 4 * 4 * LN + lane_n * 4 + (j) % 4)

// Copies BK rows of `length` floats, COPY at a time, from `from` with rows of ld floats. An item
// copies the same columns of every STEP-th row. WHOLE: all of it exists; otherwise k_left ×
// length_left, and the rest becomes zero.
#define COPY_WIDE(to, LD, length, from, ld, length_left, COPY, WHOLE)                       \
  {                                                                                         \
    const int per_row = (length) / COPY;                                                    \
    const int step = ITEMS / per_row;                                                       \
    const int col = lid % per_row * COPY;                                                   \
    const int row = lid / per_row;                                                          \
    const int count = clamp((length_left) - col, 0, COPY);                                  \
    __global const float* source = (from) + (long)row * (ld) + col;                         \
    _Pragma("unroll") for (int r = 0; r < BK; r += step) {                                  \
      const bool inside = WHOLE || row + r < k_left;                                        \
      if (BK % step == 0 || row + r < BK)                                                   \
        CAT(copy_async, COPY)                                                               \
      ((to) + (row + r) * (LD) + col, inside ? source : (from),                             \
       WHOLE ? COPY : (inside ? count : 0));                                                \
      source += step * (ld);                                                                \
    }                                                                                       \
  }

// Copies `length` rows of BK floats into columns of the tile; WHOLE as above, otherwise length_left ×
// k_left exist.
#define COPY_DEEP(to, LD, length, from, ld, length_left, WHOLE)                             \
  {                                                                                         \
    const int p = lid % 8;                                                                  \
    const int row = lid / 8;                                                                \
    __global const float* source = (from) + (long)row * (ld) + p;                           \
    _Pragma("unroll") for (int r = 0; r < (length); r += ITEMS / 8) {                       \
      const bool has_row = WHOLE || row + r < (length_left);                                \
      if ((length) % (ITEMS / 8) == 0 || row + r < (length))                                \
        _Pragma("unroll") for (int q = 0; q < BK; q += 8) {                                 \
          const bool inside = WHOLE || (has_row && p + q < k_left);                         \
          copy_async1((to) + (p + q) * (LD) + row + r, inside ? source + q : (from),        \
                      inside ? 1 : 0);                                                      \
        }                                                                                   \
      source += ITEMS / 8 * (ld);                                                           \
    }                                                                                       \
  }

#define COPY_TILE(to, LD, length, DEEP, from, ld, length_left, p0, COPY, WHOLE) \
  if (DEEP) {                                                                   \
    COPY_DEEP(to, LD, length, (from) + (p0), ld, length_left, WHOLE)            \
  } else {                                                                      \
    COPY_WIDE(to, LD, length, (from) + (p0) * (ld), ld, length_left, COPY, WHOLE) \
  }
#define COPY_TILES(WHOLE)                                                        \
  COPY_TILE(a_to, A_LD, BM, A_DEEP, from.a, from.lda, from.a_left, p0, COPY_A, WHOLE) \
  COPY_TILE(b_to, B_LD, BN, B_DEEP, from.b, from.ldb, from.b_left, p0, COPY_B, WHOLE)

// Where a group's tiles come from: its first elements, floats of a row, rows that exist, and the end of its
// share of k.
typedef struct {
  __global const float *a, *b;
  int lda, ldb, a_left, b_left;
  long k_end;
} Source;
// Starts the copies of the tile that begins at step p0 of k.
INLINED void copy_tiles(__local float* a_to, __local float* b_to, Source from, long p0) {
  const int lid = get_local_id(0);
  const int k_left = (int)min(from.k_end - p0, (long)BK);
  if (from.a_left == BM && from.b_left == BN && k_left == BK) {
    COPY_TILES(1)
  } else {
    COPY_TILES(0)
  }
}

// Four sums as one vector, for the memory of others that add up the same tile. A vector pins its
// parts to registers in a row, and y is loaded as vectors too; neighbours are exchanged, so that a
// sum is in the other bank than its y. (By count of the machine code straight ones take 8150
// clocks where these take 5320. Where nothing pins them, 14 of 128 sums share their y's bank; sums
// that start as loaded vectors put that right by count, and were 4 to 8 % slower on an H200.)
#define FOUR(i, j) (float4)(sum[i][j + 1], sum[i][j], sum[i][j + 3], sum[i][j + 2])
#define ADD_FOUR(i, j, four)    \
  {                             \
    const float4 part = (four); \
    sum[i][j] += part.y;        \
    sum[i][j + 1] += part.x;    \
    sum[i][j + 2] += part.w;    \
    sum[i][j + 3] += part.z;    \
  }

#define EACH_FOUR(i, j) EACH(i, TM) _Pragma("unroll") for (int j = 0; j < TN; j += 4)

// Rows and columns of an item's warp within the tile, and its first step of k.
#define SHARE (WK == 1 ? 0 : lid / MN_ITEMS)
#define WARP (lid / 32 - SHARE * (WM * WN))
#define WARP_ROW (WARP % WM * (LM * TM))
#define WARP_COL (WARP / WM * (LN * TN))

INLINED void zero_sums(float (*sum)[TN]) {
  EACH(i, TM) EACH(j, TN) sum[i][j] = 0.0f;
}

// An item's operands of step p of the tiles, and sum += their products.
INLINED void load_step(float* x, float* y, __local const float* a_tile, __local const float* b_tile,
                       int p) {
  const int lid = get_local_id(0);
  const int lane_m = lid % 32 % LM;
  const int lane_n = lid % 32 / LM;
  GET_FOURS(x, TM, a_tile + (SHARE * STEPS + p) * A_LD + WARP_ROW + ROW_AT(i))
  GET_FOURS(y, TN, b_tile + (SHARE * STEPS + p) * B_LD + WARP_COL + COL_AT(i))
}
// Rows there and back: where they reverse, y[j] is still at hand. Hopper reads two banks of registers once
// a clock, and a multiply-add of three new operands takes two clocks: 8 + 1 a row of 8 straight on.
INLINED void multiply_step(float (*sum)[TN], const float* x, const float* y) {
  EACH(i, TM) EACH(step, TN) {
    const int j = i % 2 ? TN - 1 - step : step;
    sum[i][j] = fma(x[i], y[j], sum[i][j]);
  }
}
// sum += the group's share of k, from k_begin on.
INLINED void multiply_share(float (*sum)[TN], __local float* a_tiles, __local float* b_tiles,
                            Source from, long k_begin) {
  EACH(s, STAGES - 1) {
    const long p0 = k_begin + s * BK;
    if (p0 < from.k_end) copy_tiles(a_tiles + s * A_TILE, b_tiles + s * B_TILE, from, p0);
    copies_commit();
  }
  int slot = 0;
  float x[2][TM];
  float y[2][TN];
  copies_wait(STAGES - 2);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (k_begin < from.k_end) load_step(x[0], y[0], a_tiles, b_tiles, 0);
  for (long p0 = k_begin; p0 < from.k_end; p0 += BK) {
    // The slot that was read before the last barrier is free.
    const long ahead = p0 + (STAGES - 1) * BK;
    const int free_slot = slot == 0 ? STAGES - 1 : slot - 1;
    if (ahead < from.k_end)
      copy_tiles(a_tiles + free_slot * A_TILE, b_tiles + free_slot * B_TILE, from, ahead);
    copies_commit();
    const int next_slot = slot == STAGES - 1 ? 0 : slot + 1;
    EACH(p, STEPS) {
      // The next step's operands arrive while this one's are multiplied, across tiles too.
      if (p < STEPS - 1) {
        load_step(x[(p + 1) % 2], y[(p + 1) % 2], a_tiles + slot * A_TILE, b_tiles + slot * B_TILE,
                  p + 1);
      } else {
        copies_wait(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (p0 + BK < from.k_end)
          load_step(x[0], y[0], a_tiles + next_slot * A_TILE, b_tiles + next_slot * B_TILE, 0);
      }
      multiply_step(sum, x[p % 2], y[p % 2]);
    }
    slot = next_slot;
  }
}

// The upper half of the shares of a tile's k hands its sums to the lower one, until one share has them all.
INLINED void add_shares(float (*sum)[TN], __local float* all_tiles) {
  const int lid = get_local_id(0);
#pragma unroll
  for (int half_shares = WK / 2; half_shares > 0; half_shares /= 2) {
    __local float4* handed = (__local float4*)all_tiles + lid % (half_shares * MN_ITEMS);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (SHARE >= half_shares && SHARE < 2 * half_shares)
      EACH_FOUR(i, j) handed[(i * TN + j) / 4 * half_shares * MN_ITEMS] = FOUR(i, j);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (SHARE < half_shares)
      EACH_FOUR(i, j) ADD_FOUR(i, j, handed[(i * TN + j) / 4 * half_shares * MN_ITEMS])
  }
}

// An item's sums to c; row0 and col0 are the tile's.
INLINED void store_sums(float (*sum)[TN], Work work, int m, int n OUTPUT_PARAMS) {
  const int lid = get_local_id(0);
  const int lane_m = lid % 32 % LM;
  const int lane_n = lid % 32 / LM;
  EACH(i, TM) {
    const int row = work.row + WARP_ROW + ROW_AT(i);
    if (row < m) {
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        const int col = work.col + WARP_COL + COL_AT(j);
        if (col < n)
          put_vector((float4)(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]),
                     ((long)work.batch * m + row) * n + col, col, n - col, OUTPUT);
      }
    }
  }
}

// c is [batch][m][n]; k, rows_a and rows_b count what a and b hold, which padding makes more than the
// problem's. Rows of a (b) are lda (ldb) floats long, batches a_batch (b_batch) apart.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_pipeline(
    __global const float* restrict a, __global const float* restrict b, __global float* parts,
    __global uint* arrivals, int m, int n, int k, int lda, int ldb, long a_batch, long b_batch,
    int rows_a, int rows_b, int row_tiles, int col_tiles, int k_share OUTPUT_ARGS) {
#if WK == 1
  // Two arrays, so that their addresses are constants: one cost an H200 3 %.
  __local float a_tiles[STAGES * A_TILE] __attribute__((aligned(16)));
  __local float b_tiles[STAGES * B_TILE] __attribute__((aligned(16)));
#else
  __local float all_tiles[STAGES * (A_TILE + B_TILE)] __attribute__((aligned(16)));
  __local float* a_tiles = all_tiles;
  __local float* b_tiles = all_tiles + STAGES * A_TILE;
#endif
#if SPLIT == 3
  __local uint order;
#endif
  const int lid = get_local_id(0);
  const Work work =
      work_of(get_group_id(0), row_tiles, col_tiles, SPLIT == 2 ? 1 : SPLITS, BM, BN);
  float sum[TM][TN];
  zero_sums(sum);
#if SPLIT != 2
  const long k_begin = (long)work.split * k_share;
  const Source from = {a + work.batch * a_batch + (A_DEEP ? (long)work.row * lda : work.row),
                       b + work.batch * b_batch + (B_DEEP ? (long)work.col * ldb : work.col),
                       lda, ldb, min(rows_a - work.row, BM), min(rows_b - work.col, BN),
                       min(k_begin + k_share, (long)k)};
  multiply_share(sum, a_tiles, b_tiles, from, k_begin);
#if WK > 1
  add_shares(sum, all_tiles);
#endif
#endif

#if SPLIT
  // An item's sums in fours, the group's items side by side.
  const long of_tile = (long)work.batch * row_tiles * col_tiles + work.tile;
  const int fours = MN_ITEMS * TM * TN / 4;
  __global float4* all = (__global float4*)parts + of_tile * SPLITS * fours + lid;
#endif
#if SPLIT == 1 || SPLIT == 3
  __global float4* own = all + (long)work.split * fours;
  if (SHARE == 0) EACH_FOUR(i, j) own[(i * TN + j) / 4 * MN_ITEMS] = FOUR(i, j);
#endif
#if SPLIT == 1
  return;
#endif
#if SPLIT == 3
  if (!comes_last(arrivals + of_tile, SPLITS, &order)) return;
  zero_sums(sum);
#endif
#if WK > 1
  if (SHARE > 0) return;
#endif
#if SPLIT >= 2
  for (int s = 0; s < SPLITS; ++s)
    EACH_FOUR(i, j) ADD_FOUR(i, j, load_shared(all + (long)s * fours + (i * TN + j) / 4 * MN_ITEMS))
#endif
  store_sums(sum, work, m, n, OUTPUT);
}
