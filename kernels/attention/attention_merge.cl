// Puts the splits of a row together: with M the largest of the splits' maxima and
// w = base^(maximum - M), o = Σ w·part / Σ w·sum. `state` holds maximum and sum of each split's row;
// a maximum of -inf tells that the row sees no key of the split (one whose keys all score -inf has
// -FLT_MAX and becomes NaN). The base is that of the kernel before: -DBASE_2=1 or -DBASE_e=1. Of its
// first EXCHANGED columns two neighbours each have changed places.
//
// One group of W items per row of a batch entry and kv head.

#if BASE_2
#define POWER(x) fast_exp2(x)
#else
#define POWER(x) exp(x)
#endif

__kernel __attribute__((reqd_work_group_size(W, 1, 1))) void merge(
    __global const float* restrict parts, __global const float* restrict state,
    __global float* restrict o, int group, int q_len, int splits) {
  const int rows = q_len * group;
  const int r = (uint)get_group_id(0) % rows;
  const int head = (uint)get_group_id(0) / rows;
  parts += ((long)head * splits * rows + r) * D;
  state += ((long)head * splits * rows + r) * 2;
  float high = -INFINITY;
#pragma unroll 8
  for (int split = 0; split < splits; ++split) high = fmax(high, state[split * rows * 2]);
  float weights = 0.0f;
#pragma unroll 8
  for (int split = 0; split < splits; ++split)
    weights += POWER(state[split * rows * 2] - high) * state[split * rows * 2 + 1];
  const float factor = 1.0f / weights;
  __global float* to = o + row_start(r, group, q_len, head * group);
  for (int d = get_local_id(0); d < D; d += W) {
    const int at = d < EXCHANGED ? d ^ 1 : d;
    float value = 0.0f;
#pragma unroll 8
    for (int split = 0; split < splits; ++split)
      value += POWER(state[split * rows * 2] - high) * parts[(long)split * rows * D + at];
    to[d] = high == -INFINITY ? 0.0f : value * factor;
  }
}
