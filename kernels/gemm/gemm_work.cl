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
// local memory, since columns may be what memory has side by side.
// PACKED=1: to[batch][tile of `block` rows][16 steps of x][row][16 big parts, 16 small ones], so that a tile
// is copied in one straight piece.
typedef ELEMENT(TYPE) bits;
#define LAY_ITEMS 256
#define LAY_LD (64 + (BYTES == 4 ? 1 : 2))  // neighbours of a column on different banks
__kernel __attribute__((reqd_work_group_size(LAY_ITEMS, 1, 1))) void rearrange(
    __global const bits* restrict from, __global bits* restrict to, int ys, int xs, int ys_to,
    int ld, int block, int outer, int inner, int y_tiles, int x_tiles) {
  __local bits tile[64 * LAY_LD];
  const int lid = get_local_id(0);
  const int y0 = get_group_id(0) % y_tiles * 64;
  const int x0 = get_group_id(0) / y_tiles % x_tiles * 64;
  const long batch = get_group_id(0) / y_tiles / x_tiles;
  to += batch * ys_to * ld;
  // An item's elements are 4 rows or columns apart.
  const int y = inner == 1 ? lid / 64 : lid % 64;
  const int x = inner == 1 ? lid % 64 : lid / 64;
  const int y_step = inner == 1 ? 4 : 0;
  const int x_step = 4 - y_step;
  from += batch * ys * xs + (long)(y0 + y) * outer + (long)(x0 + x) * inner;
  EACH(i, 16) {
    const bool is_inside = y0 + y + i * y_step < ys && x0 + x + i * x_step < xs;
    tile[(y + i * y_step) * LAY_LD + x + i * x_step] =
        is_inside ? from[(long)i * y_step * outer + (long)i * x_step * inner] : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#if PACKED
  EACH(i, 4) {
    const int row = y0 + lid / 16 + 16 * i;
    const int col = x0 + lid % 16 * 4;
    if (row >= ys_to || col >= ld / 2) continue;
    __local const float* four = tile + (lid / 16 + 16 * i) * LAY_LD + lid % 16 * 4;
    float4 big, small;
    SPLIT_TF32(big.x, small.x, four[0] * UPSCALE)
    SPLIT_TF32(big.y, small.y, four[1] * UPSCALE)
    SPLIT_TF32(big.z, small.z, four[2] * UPSCALE)
    SPLIT_TF32(big.w, small.w, four[3] * UPSCALE)
    __global float* own =
        to + (((long)(row / block) * (ld / 32) + col / 16) * block + row % block) * 32 + col % 16;
    *(__global float4*)own = big;
    *(__global float4*)(own + 16) = small;
  }
#else
  EACH(i, 16) {
    const int row = lid / 64 + 4 * i;
    if (y0 + row < ys_to && x0 + lid % 64 < ld)
      to[(long)(y0 + row) * ld + x0 + lid % 64] = tile[row * LAY_LD + lid % 64];
  }
#endif
}
