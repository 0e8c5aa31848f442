// y = exp(x - max) / sum over rows of `cols` elements; how items lie over rows: rows_loop.cl.
//   SINGLE=0: three passes, for the maximum, for exp and its sum, and for the scaling; exp is
//   computed once and waits in y, or, where y is too short a float for that, again. Merging maxima
//   on the way (Milakov & Gimelshein, arXiv 1805.02867) saves a reading but failed the bound on
//   slowly rising rows: every merge multiplies the sum by an exp that is rounded.
//   SPLITS > 1: so many groups share a row. PHASE=1 leaves exp(x - the part's maximum) in y, PHASE=2
//   scales it by what all parts' maxima and sums give; or computes it.
// The maximum starts at -FLT_MAX: elements of -inf then weigh zero, and a row of nothing else
// divides 0 by 0. NaN never wins a maximum but spreads through exp and the sum.

#if defined(FLOAT16) || defined(BFLOAT16)
#define WAITS_IN_Y 0
#define EXP_OF(v, p) exp(GLOAD(p) - largest)
#else
#define WAITS_IN_Y 1
#define EXP_OF(v, p) VLOAD(v)
#endif

__kernel __attribute__((reqd_work_group_size(LX* LY, 1, 1))) void softmax(
    __global const element* restrict x, __global element* restrict y, long rows, long cols SPLIT_PARAMS) {
  __local float scratch[LX * LY];
  BEGIN_ROW
#if PHASE == 2
  __global const float4* parts = partials + row * SPLITS;
  float largest = -FLT_MAX;
  for (int i = 0; i < SPLITS; ++i) largest = fmax(largest, parts[i].x);
  float total = 0.0f;
  for (int i = 0; i < SPLITS; ++i) total += parts[i].y * weight_of(parts[i].x, largest);
  const float scale = WAITS_IN_Y ? weight_of(parts[piece].x, largest) / total : 1.0f / total;
  for (long first = 0; first < whole; first += LX * CHUNK) {
    FOR_CHUNK(GSTORE(EXP_OF(row_y + AT(j), row_x + AT(j)) * scale, row_y + AT(j)), )
  }
  if (rest > 0) {
    const floatv last = WAITS_IN_Y ? load_some(row_y + whole * V, rest, 0.0f)
                                   : exp(load_some(row_x + whole * V, rest, 0.0f) - largest);
    store_some(last * scale, row_y + whole * V, rest);
  }
#else
  floatv last = -INFINITY;
  if (rest > 0) last = load_some(row_x + whole * V, rest, -INFINITY);
  floatv high = last > -FLT_MAX ? last : (floatv)(-FLT_MAX);

#if SINGLE
  const long first = 0;
  FOR_CHUNK(part[j] = GLOAD(row_x + AT(j)), part[j] = -INFINITY)
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) high = part[j] > high ? part[j] : high;
  const float largest = tree_max(max_lane(high), scratch, LX);
  last = exp(last - largest);
  floatv sum = last;
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    part[j] = exp(part[j] - largest);
    sum += part[j];
  }
  const float scale = 1.0f / tree_add(add_lanes(sum), scratch, LX);
  if (asked >= rows) return;
  FOR_CHUNK(GSTORE(part[j] * scale, row_y + AT(j)), )
  if (rest > 0) store_some(last * scale, row_y + whole * V, rest);
#else
  for (long first = 0; first < whole; first += LX * CHUNK) {
    FOR_CHUNK(part[j] = GLOAD(row_x + AT(j)), part[j] = -INFINITY)
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) high = part[j] > high ? part[j] : high;
  }
  const float largest = tree_max(max_lane(high), scratch, LX);
  // The chunks' sums are added with Kahan's correction, so that the length of a row costs nothing.
  last = exp(last - largest);
  floatv sum = last;
  floatv lost = 0.0f;
  for (long first = 0; first < whole; first += LX * CHUNK) {
    FOR_CHUNK(part[j] = exp(GLOAD(row_x + AT(j)) - largest), part[j] = 0.0f)
#if WAITS_IN_Y
    if (asked < rows) {
      FOR_CHUNK(VSTORE(part[j], row_y + AT(j)), )
    }
#endif
    floatv addend = -lost;
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) addend += part[j];
    const floatv old = sum;
    sum = old + addend;
    lost = (sum - old) - addend;
  }
  const float total = tree_add(add_lanes(sum - lost), scratch, LX);
#if PHASE == 1
  if (place == 0) partials[row * SPLITS + piece] = (float4)(largest, total, 0.0f, 0.0f);
  if (WAITS_IN_Y && rest > 0) store_some(last, row_y + whole * V, rest);
#else
  const float scale = 1.0f / total;
  if (asked >= rows) return;
  for (long first = 0; first < whole; first += LX * CHUNK) {
    FOR_CHUNK(GSTORE(EXP_OF(row_y + AT(j), row_x + AT(j)) * scale, row_y + AT(j)), )
  }
  if (rest > 0) store_some(last * scale, row_y + whole * V, rest);
#endif
#endif
#endif
}
