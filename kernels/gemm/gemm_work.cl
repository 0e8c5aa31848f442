// What kernels with tiles of c share, put before them: which tile a group computes, and rearranging an
// operand. TYPE is a's format; TYPE=F32 with PACKED=1 is math 3xtf32 (gemm_tensor.cl).

#ifndef TYPE
#define TYPE F32
#endif
#ifndef PACKED
#define PACKED 0
#endif
#define BYTES (TYPE == F32 ? 4 : TYPE == F16 || TYPE == BF16 ? 2 : 1)  // of an element

// Work is numbered by tile of rows × cols, then share of k, then batch. Neighbours walk c in bands of RASTER
// row tiles, which share tiles of a and b in the L2 cache.
typedef struct {
  int tile, row, col, split, batch;
} Work;
Work work_of(int number, int row_tiles, int col_tiles, int splits, int rows, int cols) {
  const int tile_count = row_tiles * col_tiles;
  const int tile = number % tile_count;
  const int band = tile / (RASTER * col_tiles);
  const int in_band = tile - band * RASTER * col_tiles;
  const int band_rows = min(RASTER, row_tiles - band * RASTER);
  Work work;
  work.tile = tile;
  work.row = (band * RASTER + in_band % band_rows) * rows;
  work.col = in_band / band_rows * cols;
  work.split = number / tile_count % splits;
  work.batch = number / tile_count / splits;
  return work;
}

// to[batch][y][x] of ys_to rows of ld elements: element (y, x) of a matrix is at from[y·outer + x·inner] for
// y < ys and x < xs; the rest becomes zero. One of outer and inner is 1. A group takes 64 × 64, through
// local memory, since columns may be what memory has side by side. PACKED=1: a row has, for each 16
// elements, their 16 big parts and 16 small ones.
#define UPSCALE 8192.0f  // 2^13, of packed parts
#if BYTES == 4
typedef float bits;
#elif BYTES == 2
typedef ushort bits;
#else
typedef uchar bits;
#endif
#define LAY_ITEMS 256
#define LAY_LD (64 + (BYTES == 4 ? 1 : 2))  // neighbours of a column on different banks
__kernel __attribute__((reqd_work_group_size(LAY_ITEMS, 1, 1))) void rearrange(
    __global const bits* restrict from, __global bits* restrict to, int ys, int xs, int ys_to,
    int ld, int outer, int inner, int y_tiles, int x_tiles) {
  __local bits tile[64 * LAY_LD];
  const int lid = get_local_id(0);
  const int y0 = get_group_id(0) % y_tiles * 64;
  const int x0 = get_group_id(0) / y_tiles % x_tiles * 64;
  const long batch = get_group_id(0) / y_tiles / x_tiles;
  from += batch * ys * xs;
  to += batch * ys_to * ld;
  for (int at = lid; at < 64 * 64; at += LAY_ITEMS) {
    const int y = inner == 1 ? at / 64 : at % 64;
    const int x = inner == 1 ? at % 64 : at / 64;
    tile[y * LAY_LD + x] = y0 + y < ys && x0 + x < xs
                               ? from[(long)(y0 + y) * outer + (long)(x0 + x) * inner] : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int at = lid; at < 64 * 64; at += LAY_ITEMS) {
    const int y = at / 64;
    const int x = x0 + at % 64;
    const bits value = tile[y * LAY_LD + at % 64];
    if (y0 + y >= ys_to || x >= ld / (1 + PACKED)) continue;
    __global bits* row = to + (long)(y0 + y) * ld;
#if PACKED
    SPLIT_TF32(row[x / 16 * 32 + x % 16], row[x / 16 * 32 + x % 16 + 16], value * UPSCALE)
#else
    row[x] = value;
#endif
  }
}
