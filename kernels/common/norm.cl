// LayerNorm (CENTRED=1): y = (x - mean) / sqrt(variance + eps) · gamma + beta over rows of `cols`
// elements; RMSNorm: y = x / sqrt(mean(x²) + eps) · gamma. LX items share a row, LY rows a group; an
// item holds CHUNK vectors of V floats at a time, LX vectors apart so that neighbours read
// neighbouring memory. The elements after the row's last whole vector belong to its first item.
//   SINGLE=1: a row fits the items' registers: memory is read once.
//   SINGLE=0: two or three readings: mean, squares, result.
//   SPLITS > 1: so many groups share a row. PHASE=1 finds sum and squares of their parts, PHASE=2
//   merges these (Chan, Golub & LeVeque 1979) and writes the results.
// The sum carries its rounding errors along, because results near the mean are only as good as the
// mean itself; so do the squares, because beside one large square thousands of small ones round the
// same way. The variance is that of x - mean, never E[x²] - E[x]².

// `action` for each whole vector of the chunk that starts at vector `first`, for part[j] at AT(j).
#define AT(j) ((first + (j)*LX + place) * V)
#define FOR_CHUNK(action)                                           \
  if (first + LX * CHUNK <= whole) {                                \
    _Pragma("unroll") for (int j = 0; j < CHUNK; ++j) { action; }   \
  } else {                                                          \
    _Pragma("unroll") for (int j = 0; j < CHUNK; ++j) {             \
      if (first + j * LX + place < whole) {                         \
        action;                                                     \
      }                                                             \
    }                                                               \
  }

#define LOAD_CHUNK FOR_CHUNK(part[j] = GLOAD(row_x + AT(j)))
#if CENTRED
#define APART(v) (((v) - mean.x) - mean.y)
#define WITH_BETA(v, load) ((v) + load)
#else
#define APART(v) (v)
#define WITH_BETA(v, load) (v)
#endif
#define ADD_CHUNK FOR_CHUNK(add_exactly(&sum, &lost, part[j]))
#define ADD_SQUARES \
  FOR_CHUNK(add_exactly(&squares, &squares_lost, APART(part[j]) * APART(part[j])))
#define STORE_CHUNK                                                                    \
  FOR_CHUNK(GSTORE(WITH_BETA(APART(part[j]) * scale * GLOAD(gamma + begin + AT(j)),    \
                             GLOAD(beta + begin + AT(j))), row_y + AT(j)))

__kernel __attribute__((reqd_work_group_size(LX* LY, 1, 1))) void norm(
    __global const element* restrict x, __global const element* restrict gamma,
    BETA_PARAM(element) __global element* restrict y, long rows, long cols, float eps_root
#if SPLITS > 1
    , __global float4* partials, __global uint* next_number
#endif
    ) {
  __local float2 scratch[LX * LY];
  const int place = get_local_id(0) % LX;
  const long asked = (long)(get_group_id(0) / SPLITS) * LY + get_local_id(0) / LX;
  // Items past the last row repeat it, since all must meet at the barriers; they store nothing.
  const long row = asked < rows ? asked : rows - 1;
  // The group's part of the row, whole vectors but for the last one.
  const int piece = get_group_id(0) % SPLITS;
  const long width = (cols / V + SPLITS) / SPLITS * V;
  const long begin = min(piece * width, cols);
  const long count = min(begin + width, cols) - begin;
  __global const element* row_x = x + row * cols + begin;
  __global element* row_y = y + row * cols + begin;
  const long whole = count / V;
  const int rest = place == 0 ? (int)(count % V) : 0;
  floatv part[CHUNK];
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
    FOR_CHUNK(part[j] = GLOAD(row_x + AT(j)) * down)
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
