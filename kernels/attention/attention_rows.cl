// Put before every kernel of this room but the ladder's. The query heads of a kv head are taken
// together: row r of a kv head is query r / group of the head's r % group-th query head, so that
// what a row sees never shrinks with r. Lengths stay below 2^30 (attention/opencl.cpp refuses
// others); division of 64-bit numbers takes a GPU a hundred instructions.

// How many keys, the first ones, row r sees.
int visible_keys(int r, int group, int q_len, int kv_len, int causal) {
  const int end = r / group + 1 + kv_len - q_len;
  return !causal ? kv_len : end < 0 ? 0 : end < kv_len ? end : kv_len;
}

// Where row r of this batch entry and kv head, whose first query head is head0, begins in q and o.
long row_start(int r, int group, int q_len, int head0) {
  return ((long)(head0 + r % group) * q_len + r / group) * D;
}
