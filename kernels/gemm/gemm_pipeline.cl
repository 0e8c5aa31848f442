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
//   transpose operands first (gemm_transpose.cl).
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

#if A_DEEP
#define COPY_A_TILE(to, p0, WHOLE) COPY_DEEP(to, A_LD, BM, a + (p0), lda, a_left, WHOLE)
#else
#define COPY_A_TILE(to, p0, WHOLE) \
  COPY_WIDE(to, A_LD, BM, a + (p0) * lda, lda, a_left, COPY_A, WHOLE)
#endif
#if B_DEEP
#define COPY_B_TILE(to, p0, WHOLE) COPY_DEEP(to, B_LD, BN, b + (p0), ldb, b_left, WHOLE)
#else
#define COPY_B_TILE(to, p0, WHOLE) \
  COPY_WIDE(to, B_LD, BN, b + (p0) * ldb, ldb, b_left, COPY_B, WHOLE)
#endif

// Starts the copies of the tile that begins at step p0 of k.
#define COPY_BOTH(slot, p0)                                                                 \
  {                                                                                         \
    const int k_left = (int)min(k_end - (p0), (long)BK);                                    \
    __local float* a_to = a_tiles + (slot) * A_TILE;                                        \
    __local float* b_to = b_tiles + (slot) * B_TILE;                                        \
    if (is_inside && k_left == BK) {                                                        \
      COPY_A_TILE(a_to, p0, 1)                                                              \
      COPY_B_TILE(b_to, p0, 1)                                                              \
    } else {                                                                                \
      COPY_A_TILE(a_to, p0, 0)                                                              \
      COPY_B_TILE(b_to, p0, 0)                                                              \
    }                                                                                       \
  }

// to[i] = the item's i-th row or column at step p of the tile.
#define LOAD(to, count, tile, LD, first, AT, p)                                             \
  _Pragma("unroll") for (int i = 0; i < (count); i += 4) {                                  \
    const float4 four = *(__local const float4*)((tile) + (p) * (LD) + (first) + AT(i));    \
    (to)[i] = four.x;                                                                       \
    (to)[i + 1] = four.y;                                                                   \
    (to)[i + 2] = four.z;                                                                   \
    (to)[i + 3] = four.w;                                                                   \
  }
#define LOAD_BOTH(to, slot, p)                                                              \
  {                                                                                         \
    LOAD(x[to], TM, a_tiles + (slot) * A_TILE, A_LD, warp_row, ROW_AT, first_step + (p))    \
    LOAD(y[to], TN, b_tiles + (slot) * B_TILE, B_LD, warp_col, COL_AT, first_step + (p))    \
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

// c is [batch][m][n]; k, rows_a and rows_b count what a and b hold, which padding makes more than the
// problem's. Rows of a (b) are lda (ldb) floats long, batches a_batch (b_batch) apart.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_pipeline(
    __global const float* restrict a, __global const float* restrict b,
    __global const float* restrict c0, __global float* restrict c, __global float* parts,
    __global uint* arrivals, int m, int n, int k, int lda, int ldb, long a_batch, long b_batch, int rows_a, int rows_b,
    int row_tiles, int col_tiles, int splits, int k_share, float alpha, float beta EPILOGUE_ARGS) {
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
  const int lane = lid % 32;
  const int share = WK == 1 ? 0 : lid / MN_ITEMS;
  const int warp = lid / 32 - share * (WM * WN);
  const int first_step = share * STEPS;
  const int lane_m = lane % LM;
  const int lane_n = lane / LM;
  // Rows and columns of the item's warp within the tile.
  const int warp_row = warp % WM * (LM * TM);
  const int warp_col = warp / WM * (LN * TN);

  // Tiles of one matrix: bands of RASTER row tiles, column by column within a band.
  const int grid = row_tiles * col_tiles;
  const long group = get_group_id(0);
  const int tile = (int)(group % grid);
#if SPLIT == 2
  const int split = 0;
  const long batch = group / grid;
#else
  const int split = (int)(group / grid % splits);
  const long batch = group / grid / splits;
#endif
  const int band = tile / (RASTER * col_tiles);
  const int band_rows = min(row_tiles - band * RASTER, RASTER);
  const int in_band = tile - band * RASTER * col_tiles;
  const long row0 = (long)(band * RASTER + in_band % band_rows) * BM;
  const long col0 = (long)(in_band / band_rows) * BN;
  const int rows_left = (int)min(m - row0, (long)BM);
  const int cols_left = (int)min(n - col0, (long)BN);
  // Rows and columns of a and b; padded operands have more than c.
  const int a_left = (int)min(rows_a - row0, (long)BM);
  const int b_left = (int)min(rows_b - col0, (long)BN);
  const bool is_inside = a_left == BM && b_left == BN;
  const long k_begin = (long)split * k_share;
  const long k_end = min(k_begin + k_share, (long)k);
  a += batch * a_batch + (A_DEEP ? row0 * lda : row0);
  b += batch * b_batch + (B_DEEP ? col0 * ldb : col0);

  float sum[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;

#if SPLIT != 2
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    const long p0 = k_begin + s * BK;
    if (p0 < k_end) COPY_BOTH(s, p0)
    copies_commit();
  }
  int slot = 0;
  float x[2][TM];
  float y[2][TN];
  copies_wait(STAGES - 2);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (k_begin < k_end) LOAD_BOTH(0, 0, 0)
  for (long p0 = k_begin; p0 < k_end; p0 += BK) {
    // The slot that was read before the last barrier is free.
    const long ahead = p0 + (STAGES - 1) * BK;
    const int free_slot = slot == 0 ? STAGES - 1 : slot - 1;
    if (ahead < k_end) COPY_BOTH(free_slot, ahead)
    copies_commit();
    const int next_slot = slot == STAGES - 1 ? 0 : slot + 1;
#pragma unroll
    for (int p = 0; p < STEPS; ++p) {
      // The next step's operands arrive while this one's are multiplied, across tiles too.
      if (p < STEPS - 1) {
        LOAD_BOTH((p + 1) % 2, slot, p + 1)
      } else {
        copies_wait(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (p0 + BK < k_end) LOAD_BOTH(0, next_slot, 0)
      }
      // Rows there and back: where they reverse, y[j] is still at hand. Hopper reads two banks of registers
      // once a clock, and a multiply-add of three new operands takes two clocks: 8 + 1 a
      // row of 8 straight on.
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int step = 0; step < TN; ++step) {
          const int j = i % 2 ? TN - 1 - step : step;
          sum[i][j] = fma(x[p % 2][i], y[p % 2][j], sum[i][j]);
        }
    }
    slot = next_slot;
  }
#endif

#if WK > 1 && SPLIT != 2
  // The upper half of the shares hands its sums to the lower one, until one share has them all.
#pragma unroll
  for (int half_shares = WK / 2; half_shares > 0; half_shares /= 2) {
    __local float4* handed = (__local float4*)all_tiles + lid % (half_shares * MN_ITEMS);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (share >= half_shares && share < 2 * half_shares) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4)
          handed[(i * TN + j) / 4 * half_shares * MN_ITEMS] = FOUR(i, j);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (share < half_shares) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4)
          ADD_FOUR(i, j, handed[(i * TN + j) / 4 * half_shares * MN_ITEMS])
    }
  }
#endif

#if SPLIT
  // An item's sums in fours, the group's items side by side.
  const long of_tile = batch * grid + tile;
  const int fours = MN_ITEMS * TM * TN / 4;
  __global float4* all = (__global float4*)parts + of_tile * splits * fours + lid;
#endif
#if SPLIT == 1 || SPLIT == 3
  __global float4* own = all + (long)split * fours;
  if (share == 0) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        own[(i * TN + j) / 4 * MN_ITEMS] = FOUR(i, j);
  }
#endif
#if SPLIT == 1
  return;
#endif
#if SPLIT == 3
  if (!comes_last(arrivals + of_tile, splits, &order)) return;
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;
#endif
#if WK > 1
  if (share > 0) return;
#endif
#if SPLIT >= 2
  for (int s = 0; s < splits; ++s) {
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        ADD_FOUR(i, j, load_shared(all + (long)s * fours + (i * TN + j) / 4 * MN_ITEMS))
      }
  }
#endif
  c += (batch * m + row0) * n + col0;
  c0 += (batch * m + row0) * n + col0;
  EPILOGUE_FROM((batch * m + row0) * n + col0)
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = warp_row + ROW_AT(i);
    if (row < rows_left) {
      __global float* c_row = c + (long)row * n;
      __global const float* c0_row = c0 + (long)row * n;
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        const int col = warp_col + COL_AT(j);
        float4 value = alpha * (float4)(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
        if (COPY_C == 4 && col + 3 < cols_left) {
          if (beta != 0.0f) value += beta * *(__global const float4*)(c0_row + col);
          *(__global float4*)(c_row + col) = EPILOGUE(value, col0 + col, (long)row * n + col);
        } else {
          const float lanes[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
          for (int l = 0; l < 4; ++l)
            if (col + l < cols_left) {
              const float one = beta != 0.0f ? lanes[l] + beta * c0_row[col + l] : lanes[l];
              c_row[col + l] = EPILOGUE_ONE(one, col0 + col + l, (long)row * n + col + l);
            }
        }
      }
    }
  }
}
