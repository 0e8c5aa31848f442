// c = alpha·op(a)·op(b) + beta·c0 with a pipeline of tiles in local memory, for GPUs. The copies of
// tiles t+1 … t+STAGES-1 are under way while tile t is multiplied (roads.cl); one barrier a tile.
//
// A group of WM × WN warps of 32 items owns BM × BN elements of c; a warp owns LM·TM rows × LN·TN
// columns, an item TM × TN results, all in registers. An item reads TM + TN floats of local memory
// per TM·TN multiply-adds: with 8 × 16 three quarters of what local memory delivers (128 bytes a
// clock for 128 multiply-adds), with 8 × 8 all of it.
//
// Tiles keep the matrices' own order, so that every copy is a straight one:
//   WIDE (rows of the tile along m or n; a transposed, b not): an item's results come in fours that
//   stand side by side, read 16 bytes at a time; neighbouring items read neighbouring fours.
//   DEEP (rows along k; a not transposed, b transposed): an item reads KU steps of k of one row at a
//   time; its rows stand LM (LN) apart. Rows are BK + 4 floats long, so that eight neighbouring
//   rows, read together, start on different banks.
// Groups walk c in bands of RASTER row tiles, so that those that run together share a's and b's tiles
// in the L2 cache. With SPLITS > 1 each group takes a share of k and writes its sums to `parts`,
// which gemm_parts.cl adds up in order.

#define ITEMS (32 * WM * WN)
#define LN (32 / LM)
#define BM (WM * LM * TM)
#define BN (WN * LN * TN)
#define A_DEEP (!TRANS_A)
#define B_DEEP TRANS_B

// Rows and row length of a tile in local memory.
#if A_DEEP
#define A_ROWS BM
#define A_LD (BK + 4)
#else
#define A_ROWS BK
#define A_LD BM
#endif
#if B_DEEP
#define B_ROWS BN
#define B_LD (BK + 4)
#else
#define B_ROWS BK
#define B_LD BN
#endif
#define A_TILE (A_ROWS * A_LD)
#define B_TILE (B_ROWS * B_LD)

// Row of c, within the warp's, of an item's i-th result; the same for columns.
#define WIDE_AT(i, lane, lanes) ((i) / 4 * 4 * (lanes) + (lane) * 4 + (i) % 4)
#define DEEP_AT(i, lane, lanes) ((i) * (lanes) + (lane))
#if A_DEEP
#define ROW_AT(i) DEEP_AT(i, lane_m, LM)
#else
#define ROW_AT(i) WIDE_AT(i, lane_m, LM)
#endif
#if B_DEEP
#define COL_AT(j) DEEP_AT(j, lane_n, LN)
#else
#define COL_AT(j) WIDE_AT(j, lane_n, LN)
#endif

// Copies a tile of `rows` rows of `length` floats, COPY floats at a time, from `from` with rows of ld
// floats, `rows_left` × `length_left` of which exist. An item copies the same column of every
// STEP-th row.
#define COPY_TILE(to, LD, rows, length, from, ld, rows_left, length_left, COPY)                  \
  {                                                                                              \
    const int per_row = (length) / COPY;                                                         \
    const int step = ITEMS / per_row;                                                            \
    const int col = lid % per_row * COPY;                                                        \
    const int row = lid / per_row;                                                               \
    const int count = clamp((int)(length_left) - col, 0, COPY);                                  \
    __global const float* source = (from) + (long)row * (ld) + col;                              \
    _Pragma("unroll") for (int r = 0; r < (rows); r += step) {                                   \
      const bool inside = row + r < (rows_left);                                                 \
      if ((rows) % step == 0 || row + r < (rows))                                                \
        CAT(copy_async, COPY)((to) + (row + r) * (LD) + col, inside ? source : (from),           \
                              inside ? count : 0);                                               \
      source += step * (ld);                                                                     \
    }                                                                                            \
  }

// Starts the copies of the tile that begins at step p0 of k.
#define COPY_BOTH(slot, p0)                                                                      \
  {                                                                                              \
    const int k_left = (int)min(k_end - (p0), (long)BK);                                         \
    __local float* a_to = a_tiles + (slot) * A_TILE;                                             \
    __local float* b_to = b_tiles + (slot) * B_TILE;                                             \
    if (A_DEEP)                                                                                  \
      COPY_TILE(a_to, A_LD, BM, BK, a + (p0), lda, rows_left, k_left, COPY_A)                    \
    else                                                                                         \
      COPY_TILE(a_to, A_LD, BK, BM, a + (p0) * lda, lda, k_left, rows_left, COPY_A)              \
    if (B_DEEP)                                                                                  \
      COPY_TILE(b_to, B_LD, BN, BK, b + (p0), ldb, cols_left, k_left, COPY_B)                    \
    else                                                                                         \
      COPY_TILE(b_to, B_LD, BK, BN, b + (p0) * ldb, ldb, k_left, cols_left, COPY_B)              \
  }

// to[u][i] = the item's i-th row or column at step p + u of k.
#define LOAD_WIDE(to, count, tile, LD, first, AT, p)                                             \
  _Pragma("unroll") for (int u = 0; u < KU; ++u)                                                 \
  _Pragma("unroll") for (int i = 0; i < (count); i += 4) {                                       \
    const float4 four = *(__local const float4*)((tile) + ((p) + u) * (LD) + (first) + AT(i));   \
    to[u][i] = four.x;                                                                           \
    to[u][i + 1] = four.y;                                                                       \
    to[u][i + 2] = four.z;                                                                       \
    to[u][i + 3] = four.w;                                                                       \
  }
#if KU == 4
#define LOAD_DEEP(to, count, tile, LD, first, AT, p)                                             \
  _Pragma("unroll") for (int i = 0; i < (count); ++i) {                                          \
    const float4 four = *(__local const float4*)((tile) + ((first) + AT(i)) * (LD) + (p));       \
    to[0][i] = four.x;                                                                           \
    to[1][i] = four.y;                                                                           \
    to[2][i] = four.z;                                                                           \
    to[3][i] = four.w;                                                                           \
  }
#else
#define LOAD_DEEP(to, count, tile, LD, first, AT, p)                                             \
  _Pragma("unroll") for (int i = 0; i < (count); ++i) {                                          \
    const float2 two = *(__local const float2*)((tile) + ((first) + AT(i)) * (LD) + (p));        \
    to[0][i] = two.x;                                                                            \
    to[1][i] = two.y;                                                                            \
  }
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_pipeline(
    __global const float* restrict a, __global const float* restrict b,
    __global const float* restrict c0, __global float* restrict c, __global float* restrict parts,
    int m, int n, int k, int row_tiles, int col_tiles, int splits, int k_share, float alpha,
    float beta) {
  __local float a_tiles[STAGES * A_TILE] __attribute__((aligned(16)));
  __local float b_tiles[STAGES * B_TILE] __attribute__((aligned(16)));

  const int lid = get_local_id(0);
  const int lane = lid % 32;
  const int warp = lid / 32;
  const int lane_m = lane % LM;
  const int lane_n = lane / LM;
  // Rows and columns of the item's warp within the tile.
  const int warp_row = warp % WM * (LM * TM);
  const int warp_col = warp / WM * (LN * TN);

  // Tiles of one matrix: bands of RASTER row tiles, column by column within a band.
  const int grid = row_tiles * col_tiles;
  const long group = get_group_id(0);
  const int tile = (int)(group % grid);
  const int split = (int)(group / grid % splits);
  const long batch = group / grid / splits;
  const int band = tile / (RASTER * col_tiles);
  const int band_rows = min(row_tiles - band * RASTER, RASTER);
  const int in_band = tile - band * RASTER * col_tiles;
  const long row0 = (long)(band * RASTER + in_band % band_rows) * BM;
  const long col0 = (long)(in_band / band_rows) * BN;
  const int rows_left = (int)min(m - row0, (long)BM);
  const int cols_left = (int)min(n - col0, (long)BN);
  const long k_begin = (long)split * k_share;
  const long k_end = min(k_begin + k_share, (long)k);
  const int lda = TRANS_A ? m : k;
  const int ldb = TRANS_B ? k : n;
  a += batch * m * k + (TRANS_A ? row0 : row0 * k);
  b += batch * n * k + (TRANS_B ? col0 * k : col0);

  float sum[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;

#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    const long p0 = k_begin + s * BK;
    if (p0 < k_end) COPY_BOTH(s, p0)
    copies_commit();
  }
  int slot = 0;
  for (long p0 = k_begin; p0 < k_end; p0 += BK) {
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    // The slot that was read before the barrier is free.
    const long ahead = p0 + (STAGES - 1) * BK;
    const int free_slot = slot == 0 ? STAGES - 1 : slot - 1;
    if (ahead < k_end) COPY_BOTH(free_slot, ahead)
    copies_commit();

    __local const float* a_tile = a_tiles + slot * A_TILE;
    __local const float* b_tile = b_tiles + slot * B_TILE;
#pragma unroll
    for (int p = 0; p < BK; p += KU) {
      float x[KU][TM];
      float y[KU][TN];
#if A_DEEP
      LOAD_DEEP(x, TM, a_tile, A_LD, warp_row, ROW_AT, p)
#else
      LOAD_WIDE(x, TM, a_tile, A_LD, warp_row, ROW_AT, p)
#endif
#if B_DEEP
      LOAD_DEEP(y, TN, b_tile, B_LD, warp_col, COL_AT, p)
#else
      LOAD_WIDE(y, TN, b_tile, B_LD, warp_col, COL_AT, p)
#endif
#pragma unroll
      for (int u = 0; u < KU; ++u)
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) sum[i][j] = fma(x[u][i], y[u][j], sum[i][j]);
    }
    slot = slot == STAGES - 1 ? 0 : slot + 1;
  }

  if (splits > 1) {
    c = parts + ((long)split * (get_num_groups(0) / grid / splits)) * m * n;
    alpha = 1.0f;
    beta = 0.0f;
  }
  c += (batch * m + row0) * n + col0;
  c0 += (batch * m + row0) * n + col0;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = warp_row + ROW_AT(i);
    if (row < rows_left) {
      __global float* c_row = c + (long)row * n;
      __global const float* c0_row = c0 + (long)row * n;
#if !B_DEEP
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        const int col = warp_col + COL_AT(j);
        float4 value = alpha * (float4)(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
        if (COPY_C == 4 && col + 3 < cols_left) {
          if (beta != 0.0f) value += beta * *(__global const float4*)(c0_row + col);
          *(__global float4*)(c_row + col) = value;
        } else {
          const float lanes[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
          for (int l = 0; l < 4; ++l)
            if (col + l < cols_left)
              c_row[col + l] = beta != 0.0f ? lanes[l] + beta * c0_row[col + l] : lanes[l];
        }
      }
#else
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        const int col = warp_col + COL_AT(j);
        const float value = alpha * sum[i][j];
        if (col < cols_left) c_row[col] = beta != 0.0f ? value + beta * c0_row[col] : value;
      }
#endif
    }
  }
}
