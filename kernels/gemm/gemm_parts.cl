// What the kernels for matrix units share, put before them: the operands' format, rearranging an operand
// for them, and adding up the sums of groups that share k. TYPE is a's format.

#define BYTES (TYPE == F16 || TYPE == BF16 ? 2 : 1)  // of an element
#define ROW 128                                      // bytes of k in a tile
#define BK (ROW / BYTES)

// The first `count` of four neighbours of a group's own sums.
void put_part(__global number* to, number4 sums, int count) {
  if (count > 0) to[0] = sums.x;
  if (count > 1) to[1] = sums.y;
  if (count > 2) to[2] = sums.z;
  if (count > 3) to[3] = sums.w;
}

// c from the SPLITS parts, added in order; an item per element. With GATE a part is gate's sums, then up's.
__kernel void add_parts(__global const number* restrict parts, int batches, int m,
                        int n OUTPUT_ARGS) {
  const long at = get_global_id(0);
  const long elements = (long)m * n;
  if (at >= batches * elements) return;
  const long batch = at / elements;
  number total[1 + GATE];
  for (int product = 0; product <= GATE; ++product) {
    total[product] = 0;
    for (int s = 0; s < SPLITS; ++s) {
      total[product] +=
          parts[(((long)s * batches + batch) * (1 + GATE) + product) * elements + at % elements];
    }
  }
#if GATE
  total[0] = gated((number4)(total[0]), (number4)(total[1])).x;
#endif
  put_one(total[0], at, at % n, OUTPUT);
}

// Rearranges an operand of `rows` rows (along m or n) along k: to[batch][row][ld bytes], zeros from k on. Element
// (row, p) is at from[row·outer + p·inner]. A group takes 64 rows × 64 steps of k, through local
// memory where rows lie across k.
#if BYTES == 2
typedef ushort bits;
#else
typedef uchar bits;
#endif
#define LAY_ITEMS 256
__kernel __attribute__((reqd_work_group_size(LAY_ITEMS, 1, 1))) void rearrange(
    __global const bits* restrict from, __global bits* restrict to, int rows, int k, int ld,
    int outer, int inner, int row_tiles, int k_tiles) {
  __local bits tile[64 * 66];
  const int lid = get_local_id(0);
  const int row0 = get_group_id(0) % row_tiles * 64;
  const int k0 = get_group_id(0) / row_tiles % k_tiles * 64;
  const long batch = get_group_id(0) / row_tiles / k_tiles;
  from += batch * rows * k;
  to += batch * rows * ld;
  for (int at = lid; at < 64 * 64; at += LAY_ITEMS) {
    const int row = inner == 1 ? at / 64 : at % 64;
    const int p = inner == 1 ? at % 64 : at / 64;
    tile[row * 66 + p] = row0 + row < rows && k0 + p < k
                             ? from[(long)(row0 + row) * outer + (long)(k0 + p) * inner] : 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int at = lid; at < 64 * 64; at += LAY_ITEMS) {
    const int row = at / 64;
    const int p = at % 64;
    if (row0 + row < rows && k0 + p < ld) to[(long)(row0 + row) * ld + k0 + p] = tile[row * 66 + p];
  }
}
