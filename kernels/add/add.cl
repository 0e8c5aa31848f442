// y = x + r over `count` elements; with BROADCAST=1 r is a row of `cols`. A group's ITEMS items hold
// CHUNK vectors of V floats each, ITEMS vectors apart, so that neighbours read neighbouring memory.

#if BROADCAST
// V elements of the row from column `col` on, from its beginning again after its end.
floatv load_columns(__global const element* r, long col, long cols) {
  if (col + V <= cols) return GLOAD(r + col);
  float lane[V];
  for (int i = 0; i < V; ++i, ++col) {
    if (col == cols) col = 0;
    lane[i] = LOAD_ONE(r, col);
  }
  return VLOAD(lane);
}
#define LOAD_R load_columns(r, at % cols, cols)
#define LOAD_LAST_R LOAD_R
#else
#define LOAD_R GLOAD(r + at)
#define LOAD_LAST_R load_some(r + at, rest, 0.0f)
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void add(
    __global const element* restrict x, __global const element* restrict r,
    __global element* restrict y, long count, long cols) {
  const long first = (long)get_group_id(0) * (ITEMS * CHUNK) + get_local_id(0);
  floatv sum[CHUNK];
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const long at = (first + j * ITEMS) * V;
    if (at + V <= count) sum[j] = GLOAD(x + at) + LOAD_R;
  }
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const long at = (first + j * ITEMS) * V;
    if (at + V <= count) {
      GSTORE(sum[j], y + at);
    } else if (at < count) {
      const int rest = (int)(count - at);
      store_some(load_some(x + at, rest, 0.0f) + LOAD_LAST_R, y + at, rest);
    }
  }
}
