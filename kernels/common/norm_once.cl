// LayerNorm (CENTRED=1) and RMSNorm, as norm.cl has them, over rows that are read from memory once; how
// items lie over rows: rows.cl, how gamma and beta lie beside them: norm_columns.cl. (Rows of any length
// on devices without local memory of their own: norm.cl.)
// The sum carries its rounding errors along and the mean is two floats, because results near the
// mean are only as good as the mean itself; the variance is that of x - mean, never E[x²] - E[x]².
// Groups that share a row take the squares about the mean of their part and merge them (Chan, Golub
// & LeVeque 1979).

#if CENTRED
#define WITH_BETA(product, factor, addend) fma(product, factor, addend)
#else
#define WITH_BETA(product, factor, addend) ((product) * (factor))
#endif

#if FORM == 2
__kernel GROUP_SIZE void norm(
    __global const float* restrict x, __global const float* restrict gamma,
    BETA_PARAM(float) __global float* restrict y, long rows, long cols, float eps_root) {
  __local float block[BLOCK] __attribute__((aligned(16)));
  __local float2 teams_a[TEAM_SCRATCH];
  __local float teams_b[TEAM_SCRATCH];
  __local float lanes[LANE_SCRATCH];
  const int lid = get_local_id(0);
  const int place = lid % LX;
  const long first = (long)get_group_id(0) * LY;
  const int width = (int)cols;
  const int count = (int)min(rows - first, (long)LY) * width;
  const int shift = stage_in(x, first * cols, count, block);

  __local float* own = block + shift + lid / LX * width;
  float squares = 0.0f;
  float2 mean = 0.0f;
#if CENTRED
  float4 sum = 0.0f;
  float4 lost = 0.0f;
#if LX <= 32
  const bool has_last = place + (CHUNK - 1) * LX < width;
  float part[CHUNK];
  FOR_CHUNK part[j] = j < CHUNK - 1 || has_last ? own[place + j * LX] : 0.0f;
#define PART(j) ((j) < CHUNK ? part[(j) < CHUNK ? (j) : 0] : 0.0f)
  _Pragma("unroll") for (int j = 0; j < CHUNK; j += 4) {
    add_exactly(&sum, &lost, (float4)(PART(j), PART(j + 1), PART(j + 2), PART(j + 3)));
  }
#else
  // Long rows stay in local memory: registers for all elements and what is multiplied with them would
  // leave room for one group per compute unit.
#define PART(j) ((j) < width ? own[j] : 0.0f)
  for (int j = place; j < width; j += 4 * LX) {
    add_exactly(&sum, &lost,
                (float4)(own[j], PART(j + LX), PART(j + 2 * LX), PART(j + 3 * LX)));
  }
#endif
  float2 total = add_lanes_exactly(sum, lost);
  add_rows_exactly(&total, teams_a, lanes);
  mean = mean_of(total, (float)width);
#endif
#if CENTRED && LX <= 32
  FOR_CHUNK {
    part[j] = (part[j] - mean.x) - mean.y;
    if (j < CHUNK - 1 || has_last) squares = fma(part[j], part[j], squares);
  }
#else
// RMSNorm from local memory, too: registers for all elements of a long row would leave room for one
// group per compute unit.
#if CENTRED
#define APART(j) ((own[j] - mean.x) - mean.y)
#else
#define APART(j) own[j]
#endif
#pragma unroll 4
  for (int j = place; j < width; j += LX) squares = fma(APART(j), APART(j), squares);
#endif
  add_rows(&squares, teams_b, lanes);
  const float spread = squares / (float)width + eps_root * eps_root;
  float scale = 1.0f / sqrt(spread);
  const long row = first + lid / LX;
  if (!is_in_range(spread) && row < rows) {
    const Moments again = scaled_moments(x + row * cols, cols, eps_root);
    mean = again.mean;
    scale = again.scale;
    for (int j = place; j < width; j += LX) own[j] *= again.down;
#if CENTRED && LX <= 32
    FOR_CHUNK part[j] = j < CHUNK - 1 || has_last ? (own[place + j * LX] - mean.x) - mean.y : 0.0f;
#endif
  }
#if CENTRED && LX <= 32
  FOR_CHUNK {
    const int at = place + j * LX;
    if (j < CHUNK - 1 || has_last) own[at] = WITH_BETA(part[j] * scale, gamma[at], beta[at]);
  }
#else
#pragma unroll 4
  for (int j = place; j < width; j += LX) own[j] = WITH_BETA(APART(j) * scale, gamma[j], beta[j]);
#endif
  stage_out(block, first * cols, count, y);
}
#endif

#if FORM == 1
__kernel GROUP_SIZE void norm(
    __global const float* restrict x, __global const float* restrict gamma,
    BETA_PARAM(float) __global float* restrict y, long rows, long cols, float eps_root SPLIT_PARAMS) {
  __local float2 teams_a[TEAM_SCRATCH];
  __local float teams_b[TEAM_SCRATCH];
  __local float lanes[LANE_SCRATCH];
  BEGIN_ROWS(0.0f)

#if CENTRED
#define APART(v) (((v) - mean[k].x) - mean[k].y)
#else
#define APART(v) (v)
#endif
#if SPLITS == 1
#define OWN_APART(v) (v)  // registers hold x - mean from the squares on
#else
#define OWN_APART(v) APART(v)
#endif
  float2 total[RY];
  float2 mean[RY];
  float squares[RY];
  FOR_ROWS mean[k] = 0.0f;
#if PHASE != 2 && CENTRED
  FOR_ROWS {
    float4 sum = part[k][0];
    float4 lost = 0.0f;
    _Pragma("unroll") for (int j = 1; j < CHUNK; ++j) add_exactly(&sum, &lost, part[k][j]);
    total[k] = add_lanes_exactly(sum, lost);
  }
  add_rows_exactly(total, teams_a, lanes);
#if SPLITS > 1
  // Elements of the group's part.
  float share[RY];
  FOR_ROWS {
    const int begin = piece * (4 * VECTORS);
    const long end = min((long)begin + 4 * VECTORS, span[k].shift + cols);
    share[k] = (float)max(end - max(begin, span[k].shift), 0L);
    mean[k] = share[k] > 0.0f ? mean_of(total[k], share[k]) : 0.0f;
  }
#else
  FOR_ROWS mean[k] = mean_of(total[k], (float)cols);
#endif
  FOR_ROWS {
    float4 sum = 0.0f;
// Where the vector is whole; in the branch below where it is cut.
#define ADD_SQUARES(v, j)                                                       \
  if (j * LX < span[k].end && !(j == 0 && span[k].begin)) sum = fma(v, v, sum);
#define ADD_CUT(v, j)                                                           \
  {                                                                             \
    const float4 apart = keep_inside(v, j, span[k], 0.0f);                      \
    sum = fma(apart, apart, sum);                                               \
  }
#if SPLITS == 1
    FOR_CHUNK part[k][j] = APART(part[k][j]);
#endif
    FOR_CHUNK ADD_SQUARES(OWN_APART(part[k][j]), j)
    if (has_cut(span[k])) {
      if (span[k].begin) ADD_CUT(OWN_APART(part[k][0]), 0)
      if (has_last(span[k])) {
        const float4 last = last_of(part[k], span[k]);
        ADD_CUT(OWN_APART(last), (span[k].left - 1) / LX)
      }
    }
    squares[k] = (sum.x + sum.z) + (sum.y + sum.w);
  }
#elif PHASE != 2
  float share[RY];
  FOR_ROWS {
    float4 sum = 0.0f;
    FOR_CHUNK sum = fma(part[k][j], part[k][j], sum);
    squares[k] = (sum.x + sum.z) + (sum.y + sum.w);
    total[k] = 0.0f;
    share[k] = 0.0f;
  }
#endif
#if PHASE != 2
  add_rows(squares, teams_b, lanes);
#endif

#if SPLITS > 1
#if PHASE != 2
  if (lid == 0) {
    FOR_ROWS give(slots + (k * SPLITS + piece) * SLOT,
                  (float4)(total[k].x, total[k].y, squares[k], share[k]), tag);
  }
#endif
#if PHASE != 1 && !CENTRED
  FOR_ROWS squares[k] = lid < SPLITS ? take(slots + (k * SPLITS + lid) * SLOT, tag).z : 0.0f;
  add_rows(squares, (__local float*)teams_a, lanes);
#elif PHASE != 1
  float4 theirs[RY];
  FOR_ROWS {
    theirs[k] = (float4)(0.0f);
    if (lid < SPLITS) theirs[k] = take(slots + (k * SPLITS + lid) * SLOT, tag);
    total[k] = theirs[k].xy;
  }
  add_rows_exactly(total, teams_a, lanes);
  FOR_ROWS {
    mean[k] = mean_of(total[k], (float)cols);
    squares[k] = 0.0f;
    if (theirs[k].w > 0.0f) {
      const float2 of_part = mean_of(theirs[k].xy, theirs[k].w);
      const float apart = (of_part.x - mean[k].x) + (of_part.y - mean[k].y);
      squares[k] = fma(theirs[k].w * apart, apart, theirs[k].z);
    }
  }
  add_rows(squares, teams_b, lanes);
#endif
#endif

#if PHASE != 1
  float scale[RY];
  FOR_ROWS {
    const float spread = squares[k] / (float)cols + eps_root * eps_root;
    scale[k] = 1.0f / sqrt(spread);
    if (!is_in_range(spread) && ROW(block, k) < rows) {
      const Moments again = scaled_moments(x + ROW(block, k) * cols, cols, eps_root);
      mean[k] = again.mean;
      scale[k] = again.scale;
      load_row(x, span[k], 0.0f, part[k]);
      FOR_CHUNK part[k][j] *= again.down;
#if SPLITS == 1
      FOR_CHUNK part[k][j] = APART(part[k][j]);
#endif
    }
  }
  const int columns_left = (int)((cols + 3) / 4) - place;
  __global const float4* gamma_from = (__global const float4*)gamma + place;
#if CENTRED
  __global const float4* beta_from = (__global const float4*)beta + place;
#define BETA_COLUMNS(columns, j) const Columns addend = columns(beta_from, j, place, columns_left);
#else
#define BETA_COLUMNS(columns, j)
#endif
#define RESULT(PART, k)                                                  \
  WITH_BETA(OWN_APART(PART) * scale[k], shifted(factor, span[k].shift), \
            shifted(addend, span[k].shift))
  FOR_CHUNK {
    // The rows share what is read of gamma and beta.
    const Columns factor = columns_together(gamma_from, j, place, columns_left);
    BETA_COLUMNS(columns_together, j)
    FOR_ROWS store_whole(RESULT(part[k][j], k), j, span[k],
                         (__global float4*)y + span[k].first);
  }
  FOR_ROWS if (has_cut(span[k])) {
    __global float4* to = (__global float4*)y + span[k].first;
    for (int is_last = 0; is_last < 2; ++is_last) {
      if (!(is_last ? has_last(span[k]) : span[k].begin)) continue;
      const int j = is_last ? (span[k].left - 1) / LX : 0;
      const Columns factor = columns_at(gamma_from, j, place, columns_left);
      BETA_COLUMNS(columns_at, j)
      const float4 own_part = is_last ? last_of(part[k], span[k]) : part[k][0];
      const float4 result = RESULT(own_part, k);
      if (is_last) store_last(result, span[k], to);
      else store_first(result, span[k], to);
    }
  }
#endif
}
#endif
