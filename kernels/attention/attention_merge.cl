// Puts the shares of a row's keys together (`merged` of attention_rows.cl). `state` holds maximum and sum of
// each share's row; a maximum of -inf means that the row sees no key of the share (a row with keys that all
// score -inf has -FLT_MAX and becomes NaN). In the first EXCHANGED columns of a part each pair of
// neighbours has changed places.
//
// One group of W items per row of a batch entry and kv head.

__kernel __attribute__((reqd_work_group_size(W, 1, 1))) void merge(
    __global const float* restrict parts, __global const float* restrict state,
    __global element* restrict o, int group, int q_len, int splits) {
  const int rows = q_len * group;
  const int r = (uint)get_group_id(0) % rows;
  const int head = (uint)get_group_id(0) / rows;
  const long row0 = (long)head * splits * rows + r;
  __global element* to = o + row_start(r, group, q_len, head * group);
  for (int d = get_local_id(0); d < D; d += W)
    STORE_ONE(merged(parts + row0 * D, state + row0 * 2, rows, D, d < EXCHANGED ? d ^ 1 : d, splits),
              to, d);
}
