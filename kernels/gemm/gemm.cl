// c = op(a)·op(b), and what follows the product (gemm_output.cl), on any device and for operands of any
// number format: tiles of a and b are decoded into local memory (gemm_decode.cl) and multiplied as
// float32, or integers as int32. The tile is chosen by -D (opencl.cpp says what each means and why).
//
// A work-group of WX × WY items owns BM × BN elements of c. Per step of BK along k it copies a tile
// of op(a) and one of op(b) into local memory, k-major, zero beyond the matrices' edges.
// An item owns MT × NT micro-tiles of TM rows × TV vectors of V columns, WY·TM rows and WX·TV·V
// columns apart, so that neighbouring items read neighbouring local memory.
// GATE=1: the tile of b holds BN columns of `gate`, then as many of `up`.
//   RESIDENT=1: all sums of an item stay in registers (GPUs).
//   RESIDENT=0: one micro-tile at a time is held in registers through the whole step, the others
//   wait in private memory (CPUs, where a group is one item and private memory is the L1 cache).

#define ITEMS (WX * WY)
#define TN (TV * V)
#define BM (MT * WY * TM)
#define BN (NT * WX * TN)
#define ACROSS (NT * (1 + GATE))  // micro-tiles across the tile of b
// One more vector per row: stores down a column of the tile then hit different banks.
#define LDA (BM + PAD)
#define LDB (BN * (1 + GATE) + PAD)
#define TILE_ROW(mi, ly) (((mi)*WY + (ly)) * TM)
#define TILE_COL(ni, lx) (((ni)*WX + (lx)) * TN)

// Loops over an item's micro-tiles: unrolled where the tiles are registers; memory needs none of it,
// and compilers take minutes over it.
#if RESIDENT
#define TILES EACH
#else
#define TILES(i, count) for (int i = 0; i < (count); ++i)
#endif

// tile[p][i] = NUMBER(i, p) for i < LENGTH and p < BK; zero from `left` and `k_left` on. Consecutive
// items go along the contiguous axis, which is k with ALONG_K=1.
#define FILL_WHERE(tile, LD, LENGTH, ALONG_K, NUMBER, IS_INSIDE)                              \
  {                                                                                           \
    const int across = ALONG_K ? BK : LENGTH;                                                 \
    const int items_across = ITEMS < across ? ITEMS : across;                                 \
    for (int x = lid / items_across; x < (ALONG_K ? LENGTH : BK); x += ITEMS / items_across)  \
      for (int y = lid % items_across; y < across; y += items_across) {                       \
        const int i = ALONG_K ? x : y;                                                        \
        const int p = ALONG_K ? y : x;                                                        \
        (tile)[p * LD + i] = (IS_INSIDE) ? NUMBER(i, p) : (number)0;                          \
      }                                                                                       \
  }
#define FILL_TILE(tile, LD, LENGTH, ALONG_K, left, k_left, NUMBER)                            \
  if ((left) >= LENGTH && (k_left) >= BK)                                                     \
    FILL_WHERE(tile, LD, LENGTH, ALONG_K, NUMBER, 1)                                          \
  else                                                                                        \
    FILL_WHERE(tile, LD, LENGTH, ALONG_K, NUMBER, i < (left) && p < (k_left))

#define A_NUMBER(i, p)                                                                        \
  DECODE(A_TYPE, a[TRANS_A ? (long)(p0 + (p)) * m + (row0 + (i))                              \
                           : (long)(row0 + (i)) * k + (p0 + (p))])
#if IN_BLOCKS
#define B_AT(col, p) number_of_b(b + B_ELEMENTS(col, k), p)
#else
#define B_AT(col, p) \
  DECODE(B_TYPE, b[TRANS_B ? (long)(col) * k + (p) : (long)(p) * (n * (1 + GATE)) + (col)])
#endif
#if B_TYPE == S8C
#define B_NUMBER(i, p) (b_scale[col0 + (i)] * B_AT(col0 + (i), p0 + (p)))
#else
#define B_NUMBER(i, p) B_AT(col0 + (i), p0 + (p))
#endif
#define UP_NUMBER(i, p) B_NUMBER(n + (i), p)

// sum += the tile of a, from this item's first row on, times that of b, from its first column on.
// Inlined, since a call would put the sums in memory.
INLINED void multiply_tiles(numberv (*sum)[ACROSS][TM][TV], __local const number* a_at,
                            __local const number* b_at, int steps) {
#if RESIDENT
  for (int p = 0; p < steps; ++p, a_at += LDA, b_at += LDB) {
    number x[MT][TM];
    numberv y[ACROSS][TV];
    EACH(mi, MT) EACH(i, TM) x[mi][i] = a_at[TILE_ROW(mi, 0) + i];
    EACH(ni, ACROSS) EACH(j, TV)
      y[ni][j] = *(__local const numberv*)(b_at + TILE_COL(ni, 0) + j * V);
    EACH(mi, MT) EACH(ni, ACROSS) EACH(i, TM) EACH(j, TV) sum[mi][ni][i][j] += x[mi][i] * y[ni][j];
  }
#else
  for (int ni = 0; ni < ACROSS; ++ni)
    for (int mi = 0; mi < MT; ++mi) {
      numberv part[TM][TV];
      EACH(i, TM) EACH(j, TV) part[i][j] = sum[mi][ni][i][j];
      __local const number* x = a_at + TILE_ROW(mi, 0);
      __local const number* y = b_at + TILE_COL(ni, 0);
      for (int p = 0; p < steps; ++p, x += LDA, y += LDB)
        EACH(i, TM) EACH(j, TV) part[i][j] += x[i] * *(__local const numberv*)(y + j * V);
      EACH(i, TM) EACH(j, TV) sum[mi][ni][i][j] = part[i][j];
    }
#endif
}

// Groups along one axis of the grid: row tiles fastest, then column tiles, then the batch, so that
// groups that run together share columns of b. b_scale: of each column of s8c. k = 0 reads neither
// a nor b.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm(
    __global const a_element* restrict a, __global const b_element* restrict b,
    __global const float* restrict b_scale, int m, int n, int k, int row_tiles,
    int col_tiles OUTPUT_ARGS) {
  __local number a_tile[BK * LDA] __attribute__((aligned(64)));
  __local number b_tile[BK * LDB] __attribute__((aligned(64)));
  const int lid = get_local_id(0);
  const int lx = lid % WX;
  const int ly = lid / WX;
  const int row0 = get_group_id(0) % row_tiles * BM;
  const int col0 = get_group_id(0) / row_tiles % col_tiles * BN;
  const long batch = get_group_id(0) / row_tiles / col_tiles;
  a += batch * m * k;
  b += batch * B_ELEMENTS(n * (1 + GATE), k);

  numberv sum[MT][ACROSS][TM][TV];
  TILES(mi, MT) TILES(ni, ACROSS) TILES(i, TM) TILES(j, TV) sum[mi][ni][i][j] = (numberv)(0);

  for (int p0 = 0; p0 < k; p0 += BK) {
    FILL_TILE(a_tile, LDA, BM, !TRANS_A, m - row0, k - p0, A_NUMBER)
    FILL_TILE(b_tile, LDB, BN, TRANS_B, n - col0, k - p0, B_NUMBER)
#if GATE
    FILL_TILE(b_tile + BN, LDB, BN, TRANS_B, n - col0, k - p0, UP_NUMBER)
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    // A constant number of steps, of zeros beyond k, suits registers.
    multiply_tiles(sum, a_tile + TILE_ROW(0, ly), b_tile + TILE_COL(0, lx),
                   RESIDENT || k - p0 > BK ? BK : k - p0);
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  c += batch * m * n;
  c0 += batch * m * n;
  residual += batch * m * n;
  TILES(mi, MT) TILES(ni, NT) TILES(i, TM) TILES(j, TV) {
    const int row = row0 + TILE_ROW(mi, ly) + i;
    const int col = col0 + TILE_COL(ni, lx) + j * V;
    if (row >= m) continue;
#if GATE
    const numberv value = gated(sum[mi][ni][i][j], sum[mi][NT + ni][i][j]);
#else
    const numberv value = sum[mi][ni][i][j];
#endif
    put_vector(value, (long)row * n + col, col, n - col, OUTPUT);
  }
}
