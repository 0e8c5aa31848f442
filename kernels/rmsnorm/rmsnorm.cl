// y = x / sqrt(mean(x²) + eps) · gamma over rows of `cols` elements. LX items share a row, LY rows a
// group; an item holds CHUNK vectors of V floats at a time, LX vectors apart so that neighbours read
// neighbouring memory. The elements after the row's last whole vector belong to its first item.
//   SINGLE=1: a row fits the items' registers: memory is read once.
//   SINGLE=0: two readings: squares, result.
//   SPLITS > 1: so many groups share a row. PHASE=1 finds the squares of their parts, PHASE=2 adds
//   these and writes the results.
// The sum carries its rounding errors along: beside one large square thousands of small ones round
// the same way.

// `action` for each whole vector of the chunk that starts at vector `first`, for part[j] at AT(j).
#define AT(j) ((first + (j)*LX + place) * V)
#define FOR_CHUNK(action)                             \
  _Pragma("unroll") for (int j = 0; j < CHUNK; ++j) { \
    if (first + j * LX + place < whole) {             \
      action;                                         \
    }                                                 \
  }

#define LOAD_CHUNK FOR_CHUNK(part[j] = GLOAD(row_x + AT(j)))
#define ADD_SQUARES FOR_CHUNK(add_exactly(&squares, &lost, part[j] * part[j]))
#define STORE_CHUNK \
  FOR_CHUNK(GSTORE(part[j] * scale * GLOAD(gamma + begin + AT(j)), row_y + AT(j)))

__kernel __attribute__((reqd_work_group_size(LX* LY, 1, 1))) void rmsnorm(
    __global const element* restrict x, __global const element* restrict gamma,
    __global element* restrict y, long rows, long cols, float eps
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
#if PHASE != 2
  floatv squares = last * last;
  floatv lost = 0.0f;
#if SINGLE
  const long first = 0;
  LOAD_CHUNK
  ADD_SQUARES
#else
  for (long first = 0; first < whole; first += LX * CHUNK) {
    LOAD_CHUNK
    ADD_SQUARES
  }
#endif
  const float2 pair = tree_add_pairs(add_lanes_exactly(squares, lost), scratch, LX);
  // What an infinity rounds off is NaN.
  const float total = isinf(pair.x) ? pair.x : pair.x + pair.y;
#if PHASE == 1
  if (place == 0) partials[row * SPLITS + piece] = (float4)(total, 0.0f, 0.0f, 0.0f);
  return;
#endif
#else
  float total = 0.0f;
  for (int i = 0; i < SPLITS; ++i) total += partials[row * SPLITS + i].x;
#endif
  const float scale = 1.0f / sqrt(total / cols + eps);

  if (asked >= rows) return;
#if SINGLE
  STORE_CHUNK
#else
  for (long first = 0; first < whole; first += LX * CHUNK) {
    LOAD_CHUNK
    STORE_CHUNK
  }
#endif
  if (rest > 0) {
    const long at = whole * V;
    store_some(last * scale * load_some(gamma + begin + at, rest, 0.0f), row_y + at, rest);
  }
}
