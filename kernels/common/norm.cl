// LayerNorm (CENTRED=1): y = (x - mean) / sqrt(variance + eps) · gamma + beta over rows of `cols`
// elements; RMSNorm: y = x / sqrt(mean(x²) + eps) · gamma. How items lie over rows: rows_loop.cl.
//   SINGLE=0: two or three readings: mean, squares, result.
//   SPLITS > 1: PHASE=1 finds sum and squares of their parts, PHASE=2
//   merges these (Chan, Golub & LeVeque 1979) and writes the results.
// The sum carries its rounding errors along, because results near the mean are only as good as the
// mean itself; so do the squares, because beside one large square thousands of small ones round the
// same way. The variance is that of x - mean, never E[x²] - E[x]².

#define LOAD_CHUNK FOR_CHUNK(part[j] = GLOAD(row_x + AT(j)), )
#if CENTRED
#define APART(v) (((v) - mean.x) - mean.y)
#define WITH_BETA(v, load) ((v) + load)
#else
#define APART(v) (v)
#define WITH_BETA(v, load) (v)
#endif
#define ADD_CHUNK FOR_CHUNK(add_exactly(&sum, &lost, part[j]), )
#define ADD_SQUARES \
  FOR_CHUNK(add_exactly(&squares, &squares_lost, APART(part[j]) * APART(part[j])), )
#define STORE_CHUNK                                                                    \
  FOR_CHUNK(GSTORE(WITH_BETA(APART(part[j]) * scale * GLOAD(gamma + begin + AT(j)),    \
                             GLOAD(beta + begin + AT(j))), row_y + AT(j)), )

__kernel __attribute__((reqd_work_group_size(LX* LY, 1, 1))) void norm(
    __global const element* restrict x, __global const element* restrict gamma,
    BETA_PARAM(element) __global element* restrict y, long rows, long cols, float eps_root
    SPLIT_PARAMS) {
  __local float2 scratch[LX * LY];
  BEGIN_ROW
  const long count = end - begin;
  floatv last = 0.0f;
  if (rest > 0) last = load_some(row_x + whole * V, rest, 0.0f);
  float2 mean = 0.0f;
#if PHASE != 2
#if CENTRED
  floatv sum = last;
  floatv lost = 0.0f;

#if SINGLE
  const long first = 0;
  LOAD_CHUNK
  ADD_CHUNK
#else
  for (long first = 0; first < whole; first += LX * CHUNK) {
    LOAD_CHUNK
    ADD_CHUNK
  }
#endif
  const float2 total = tree_add_pairs(add_lanes_exactly(sum, lost), scratch, LX);
  mean = mean_of(total, (float)max(count, 1L));
#else
  const float2 total = 0.0f;
#if SINGLE
  const long first = 0;
  LOAD_CHUNK
#endif
#endif

  floatv squares = 0.0f;
  floatv squares_lost = 0.0f;
  if (rest > 0) squares = keep_some(APART(last) * APART(last), rest);
#if SINGLE
  ADD_SQUARES
#else
  for (long first = 0; first < whole; first += LX * CHUNK) {
    LOAD_CHUNK
    ADD_SQUARES
  }
#endif
  const float2 pair = tree_add_pairs(add_lanes_exactly(squares, squares_lost), scratch, LX);
  // What an infinity rounds off is NaN.
  const float total_squares = isinf(pair.x) ? pair.x : pair.x + pair.y;
#if PHASE == 1
  if (place == 0) partials[row * SPLITS + piece] = (float4)(total, total_squares, count);
  return;
#endif
#else
  __global const float4* parts = partials + row * SPLITS;
  float total_squares = 0.0f;
#if CENTRED
  float2 total = 0.0f;
  for (int i = 0; i < SPLITS; ++i) total = add_pairs(total, parts[i].xy);
  mean = mean_of(total, (float)cols);
  for (int i = 0; i < SPLITS; ++i) {
    const float2 of_part = mean_of(parts[i].xy, fmax(parts[i].w, 1.0f));
    const float apart = (of_part.x - mean.x) + (of_part.y - mean.y);
    total_squares += parts[i].z + parts[i].w * apart * apart;
  }
#else
  for (int i = 0; i < SPLITS; ++i) total_squares += parts[i].z;
#endif
#endif

  if (asked >= rows) return;
  const float spread = total_squares / cols + eps_root * eps_root;
  float scale = 1.0f / sqrt(spread);
  float down = 1.0f;
  if (!is_in_range(spread)) {
    const Moments again = scaled_moments(x + row * cols, cols, eps_root);
    mean = again.mean;
    scale = again.scale;
    down = again.down;
    last *= down;
#if SINGLE
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) part[j] *= down;
#endif
  }
#if SINGLE
  STORE_CHUNK
#else
  for (long first = 0; first < whole; first += LX * CHUNK) {
    FOR_CHUNK(part[j] = GLOAD(row_x + AT(j)) * down, )
    STORE_CHUNK
  }
#endif
  if (rest > 0) {
    const long at = whole * V;
    store_some(WITH_BETA(APART(last) * scale * load_some(gamma + begin + at, rest, 0.0f),
                         load_some(beta + begin + at, rest, 0.0f)),
               row_y + at, rest);
  }
}
