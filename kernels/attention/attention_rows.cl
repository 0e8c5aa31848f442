// Put before every kernel of this room but the ladder's. The query heads of a kv head are taken
// together: row r of a kv head is query r / group of the head's r % group-th query head, so that
// what a row sees never shrinks with r. Lengths stay below 2^30 (attention/opencl.cpp refuses
// others); division of 64-bit numbers takes a GPU a hundred instructions.

// What the options of attention.hpp need: a mask [q_len,kv_len] with -DMASK=1, how many keys the
// cache of each row of the batch holds with -DLENGTHS=1, a window (0: none), a cap with -DSOFTCAP=1.
#define OPTIONS                                                                          \
  __global const float *restrict mask, __global const int *restrict lengths, int kv_heads, \
      int window, float cap
// Keys in the cache of a batch entry and kv head, of kv_len that there is room for.
#if LENGTHS
#define HELD(head) lengths[(head) / kv_heads]
#else
#define HELD(head) kv_len
#endif

// Where the keys end that row r sees; without a window they are the first ones.
int visible_keys(int r, int group, int q_len, int kv_len, int causal) {
  const int end = r / group + 1 + kv_len - q_len;
  return !causal ? kv_len : end < 0 ? 0 : end < kv_len ? end : kv_len;
}

// Where they begin: with a window the last ones alone are seen.
int first_visible(int end, int window) { return window == 0 || end < window ? 0 : end - window; }

// Row r of this batch entry and kv head, whose first query head is head0, among those of q and o;
// and where it begins.
long row_of(int r, int group, int q_len, int head0) {
  return (long)(head0 + r % group) * q_len + r / group;
}
long row_start(int r, int group, int q_len, int head0) {
  return row_of(r, group, q_len, head0) * D;
}
