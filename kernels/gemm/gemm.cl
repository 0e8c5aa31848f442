// c = alpha·op(a)·op(b) + beta·c0 with tiles in local memory. Sizes, strides of batches and scalars
// are arguments; the tile is chosen by -D (gemm/opencl.cpp says what each means and why).
//
// A work-group of WX × WY items owns BM × BN elements of c. Per step of BK along k it copies a tile
// of op(a), stored k-major, and one of op(b) into local memory, zero beyond the matrices' edges.
// An item owns MT × NT micro-tiles of TM rows × TV vectors of V columns, WY·TM rows and WX·TV·V
// columns apart, so that neighbouring items read neighbouring local memory.
//   RESIDENT=1: all accumulators of an item stay in registers (GPUs).
//   RESIDENT=0: one micro-tile at a time is held in registers through the whole step, the others
//   wait in private memory (CPUs, where a group is one item and private memory is the L1 cache).

#define ITEMS (WX * WY)
#define TN (TV * V)
#define BM (MT * WY * TM)
#define BN (NT * WX * TN)
// One more vector per row: stores down a column of the tile then hit different banks.
#define LDA (BM + PAD)
#define LDB (BN + PAD)
// Shape of the group while it copies: consecutive items along the contiguous axis.
#define ALONG(length) (ITEMS < (length) ? ITEMS : (length))

// Loops over an item's micro-tiles: unrolled where the tiles are registers; memory needs none of it,
// and compilers take minutes over it.
#if RESIDENT
#define UNROLL_TILES _Pragma("unroll")
#else
#define UNROLL_TILES
#endif

#define TILE_ROW(mi, ly) (((mi)*WY + (ly)) * TM)
#define TILE_COL(ni, lx) (((ni)*WX + (lx)) * TN)

// tile[x][y] = matrix[x0+x][y0+y] for x < xs, y < ys of a row-major matrix with rows of ld elements
// and `rows_left` × `cols_left` elements from (x0,y0) on; zero outside. Transposed: tile[y][x].
#define COPY_TILE(tile, LD, xs, ys, matrix, ld, rows_left, cols_left, AT)                     \
  {                                                                                           \
    const int y_items = ALONG(ys);                                                            \
    if ((rows_left) >= (xs) && (cols_left) >= (ys)) {                                         \
      for (int x = lid / y_items; x < (xs); x += ITEMS / y_items)                             \
        for (int y = lid % y_items; y < (ys); y += y_items)                                   \
          tile[AT(x, y, LD)] = (matrix)[x * (ld) + y];                                        \
    } else {                                                                                  \
      for (int x = lid / y_items; x < (xs); x += ITEMS / y_items)                             \
        for (int y = lid % y_items; y < (ys); y += y_items)                                   \
          tile[AT(x, y, LD)] =                                                                \
              x < (rows_left) && y < (cols_left) ? (matrix)[x * (ld) + y] : 0.0f;             \
    }                                                                                         \
  }
#define STRAIGHT(x, y, LD) ((x) * (LD) + (y))
#define TRANSPOSED(x, y, LD) ((y) * (LD) + (x))

// b as panels of BN columns: packed[batch][panel][p][column], zero beyond n. One group per BK × BN
// tile, panel fastest.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void pack_b(
    __global const float* restrict b, __global float* restrict packed, long n, long k, long panels) {
  const int lid = get_local_id(0);
  const long blocks = (k + BK - 1) / BK;
  const long tile = get_group_id(0);
  const long panel = tile % panels;
  const long p0 = tile / panels % blocks * BK;
  const long batch = tile / panels / blocks;
  const int steps = k - p0 < BK ? (int)(k - p0) : BK;
  b += batch * n * k;
  packed += ((batch * panels + panel) * k + p0) * BN;
  for (int i = lid; i < steps * BN; i += ITEMS) {
    const long p = p0 + i / BN;
    const long column = panel * BN + i % BN;
    packed[i] = column < n ? b[TRANS_B ? column * k + p : p * n + column] : 0.0f;
  }
}

// The last axis of the grid is (batch, column tile, row tile), row tile fastest: groups that run
// together share a panel of b. k = 0 reads neither a nor b; beta = 0
// never reads c0.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm(
    __global const float* restrict a, __global const float* restrict b,
    __global const float* restrict c0, __global float* restrict c, long m, long n, long k,
    long row_tiles, long column_tiles, float alpha, float beta EPILOGUE_ARGS) {
  __local float a_tile[BK * LDA] __attribute__((aligned(64)));
  __local float b_tile[BK * LDB] __attribute__((aligned(64)));

  const int lid = get_local_id(0);
  const int lx = lid % WX;
  const int ly = lid / WX;
  const long tile = get_group_id(0);
  const long row0 = tile % row_tiles * BM;
  const long column_tile = tile / row_tiles % column_tiles;
  const long col0 = column_tile * BN;
  const long batch = tile / row_tiles / column_tiles;
  const long rows_left = m - row0;
  const long cols_left = n - col0;
  a += batch * m * k;
#if PACKED
  b += (batch * column_tiles + column_tile) * k * BN;
#else
  b += batch * n * k;
#endif

  floatv sum[MT][NT][TM][TV];
UNROLL_TILES
  for (int mi = 0; mi < MT; ++mi)
UNROLL_TILES
    for (int ni = 0; ni < NT; ++ni)
UNROLL_TILES
      for (int i = 0; i < TM; ++i)
UNROLL_TILES
        for (int j = 0; j < TV; ++j) sum[mi][ni][i][j] = 0.0f;

  for (long p0 = 0; p0 < k; p0 += BK) {
    const long k_left = k - p0;
#if TRANS_A
    COPY_TILE(a_tile, LDA, BK, BM, a + p0 * m + row0, m, k_left, rows_left, STRAIGHT)
#else
    COPY_TILE(a_tile, LDA, BM, BK, a + row0 * k + p0, k, rows_left, k_left, TRANSPOSED)
#endif
#if PACKED
    COPY_TILE(b_tile, LDB, BK, BN, b + p0 * BN, BN, k_left, BN, STRAIGHT)
#elif TRANS_B
    COPY_TILE(b_tile, LDB, BN, BK, b + col0 * k + p0, k, cols_left, k_left, TRANSPOSED)
#else
    COPY_TILE(b_tile, LDB, BK, BN, b + p0 * n + col0, n, k_left, cols_left, STRAIGHT)
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    const int steps = k_left < BK ? (int)k_left : BK;
#if RESIDENT
    for (int p = 0; p < steps; ++p) {
      float x[MT][TM];
      floatv y[NT][TV];
UNROLL_TILES
      for (int mi = 0; mi < MT; ++mi)
#pragma unroll
        for (int i = 0; i < TM; ++i) x[mi][i] = a_tile[p * LDA + TILE_ROW(mi, ly) + i];
UNROLL_TILES
      for (int ni = 0; ni < NT; ++ni)
#pragma unroll
        for (int j = 0; j < TV; ++j)
          y[ni][j] = *(__local const floatv*)(b_tile + p * LDB + TILE_COL(ni, lx) + j * V);
UNROLL_TILES
      for (int mi = 0; mi < MT; ++mi)
UNROLL_TILES
        for (int ni = 0; ni < NT; ++ni)
#pragma unroll
          for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TV; ++j) sum[mi][ni][i][j] += x[mi][i] * y[ni][j];
    }
#else
    for (int ni = 0; ni < NT; ++ni) {
      for (int mi = 0; mi < MT; ++mi) {
        floatv part[TM][TV];
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TV; ++j) part[i][j] = sum[mi][ni][i][j];
        __local const float* x = a_tile + TILE_ROW(mi, ly);
        __local const float* y = b_tile + TILE_COL(ni, lx);
        for (int p = 0; p < steps; ++p, x += LDA, y += LDB) {
#pragma unroll
          for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TV; ++j) part[i][j] += x[i] * *(__local const floatv*)(y + j * V);
        }
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TV; ++j) sum[mi][ni][i][j] = part[i][j];
      }
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  c += batch * m * n;
  c0 += batch * m * n;
  EPILOGUE_FROM(batch * m * n)
UNROLL_TILES
  for (int mi = 0; mi < MT; ++mi)
UNROLL_TILES
    for (int ni = 0; ni < NT; ++ni)
UNROLL_TILES
      for (int i = 0; i < TM; ++i)
UNROLL_TILES
        for (int j = 0; j < TV; ++j) {
          const long row = row0 + TILE_ROW(mi, ly) + i;
          const long col = col0 + TILE_COL(ni, lx) + j * V;
          if (row < m && col < n) {
            const long at = row * n + col;
            const int count = n - col < V ? (int)(n - col) : V;
            floatv value = alpha * sum[mi][ni][i][j];
            if (count == V) {
              if (beta != 0.0f) value += beta * VLOAD(c0 + at);
              VSTORE(EPILOGUE(value, col, at), c + at);
            } else {
              if (beta != 0.0f) value += beta * load_some(c0 + at, count, 0.0f);
              store_some(EPILOGUE_SOME(value, col, at, count), c + at, count);
            }
          }
        }
}
