// y = x with pairs of elements rotated, `count` pairs of rows of `pairs` each: element i of a row with
// i + pairs, or with NEIGHBOURS=1 2i with 2i + 1. cos and sin: [len,pairs]; row r belongs to position
// r mod len. A group's ITEMS items hold CHUNK times V pairs each, ITEMS of these apart, so that
// neighbours read neighbouring memory. WHOLE=1: V divides `pairs`. Rows of heads from `rotated` on are
// copied.

#if !NEIGHBOURS && WHOLE
// V pairs of one row.
#define ROTATE_PAIRS \
  const long row = at / pairs; \
  const bool turns = row / len % heads < rotated; \
  const long place = row * (2 * pairs) + at % pairs; \
  const long entry = row % len * pairs + at % pairs; \
  const floatv a = GLOAD(x + place), b = GLOAD(x + place + pairs); \
  const floatv c = VLOAD(cos + entry), s = VLOAD(sin + entry); \
  GSTORE(turns ? a * c - b * s : a, y + place); \
  GSTORE(turns ? b * c + a * s : b, y + place + pairs);
#else
#define ROTATE_PAIRS \
  for (int i = 0; i < V; ++i) { \
    const long pair = at + i; \
    if (pair >= count) break; \
    const long row = pair / pairs; \
    const bool turns = row / len % heads < rotated; \
    const long place = row * (2 * pairs) + (NEIGHBOURS ? 2 : 1) * (pair % pairs); \
    const long other = place + (NEIGHBOURS ? 1 : pairs); \
    const long entry = row % len * pairs + pair % pairs; \
    const float a = LOAD_ONE(x, place), b = LOAD_ONE(x, other); \
    STORE_ONE(turns ? a * cos[entry] - b * sin[entry] : a, y, place); \
    STORE_ONE(turns ? b * cos[entry] + a * sin[entry] : b, y, other); \
  }
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void rope(
    __global const element* restrict x, __global const float* restrict cos,
    __global const float* restrict sin, __global element* restrict y, long count, long len, long pairs,
    long heads, long rotated) {
  const long first = (long)get_group_id(0) * (ITEMS * CHUNK) + get_local_id(0);
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const long at = (first + j * ITEMS) * V;
    if (at < count) {
      ROTATE_PAIRS
    }
  }
}
