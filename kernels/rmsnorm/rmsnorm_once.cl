// y = x / sqrt(mean(x²) + eps) · gamma over rows of `cols` elements, each read from memory once; how
// items lie over rows: kernels/common/rows.cl, how gamma lies beside them: columns.cl. (Rows of any
// length on devices without local memory of their own: rmsnorm.cl.)

#if FORM == 2
__kernel GROUP_SIZE void rmsnorm(
    __global const float* restrict x, __global const float* restrict gamma,
    __global float* restrict y, long rows, long cols, float eps) {
  __local float block[BLOCK] __attribute__((aligned(16)));
  __local float teams[TEAM_SCRATCH];
  __local float lanes[LANE_SCRATCH];
  const int lid = get_local_id(0);
  const int place = lid % LX;
  const long first = (long)get_group_id(0) * LY;
  const int width = (int)cols;
  const int count = (int)min(rows - first, (long)LY) * width;
  const int shift = stage_in(x, first * cols, count, block);

  // From local memory twice: registers for all elements of a long row would leave room for one group
  // per compute unit.
  __local float* own = block + shift + lid / LX * width;
  float squares = 0.0f;
#pragma unroll 4
  for (int j = place; j < width; j += LX) squares = fma(own[j], own[j], squares);
  add_rows(&squares, teams, lanes);
  const float scale = 1.0f / sqrt(squares / (float)width + eps);
#pragma unroll 4
  for (int j = place; j < width; j += LX) own[j] = own[j] * scale * gamma[j];
  stage_out(block, first * cols, count, y);
}
#endif

#if FORM == 1
__kernel GROUP_SIZE void rmsnorm(
    __global const float* restrict x, __global const float* restrict gamma,
    __global float* restrict y, long rows, long cols, float eps
#if SPLITS > 1
    , __global float4* partials, __global uint* next_number
#endif
    ) {
  __local float teams_a[TEAM_SCRATCH];
  __local float teams_b[TEAM_SCRATCH];
  __local float lanes[LANE_SCRATCH];
  const int lid = get_local_id(0);
#if SPLITS > 1
  __local uint drawn;
  const uint number = group_number(next_number, &drawn);
  const long block = number / SPLITS;
  const int piece = number % SPLITS;
  __global float4* slots = partials + block * (RY * SPLITS * SLOT);
  const uint tag = tag_of(slots + piece * SLOT) + 1;
#else
  const long block = get_group_id(0);
  const int piece = 0;
#endif
  const int place = piece * VECTORS + lid % LX;
  Span span[RY];
  float4 part[RY][CHUNK];
  FOR_ROWS span[k] = span_of(ROW(block, k), rows, cols, place);
  FOR_ROWS load_row(x, span[k], 0.0f, part[k]);

  float squares[RY];
#if PHASE != 2
  FOR_ROWS {
    float4 sum = 0.0f;
    FOR_CHUNK sum = fma(part[k][j], part[k][j], sum);
    squares[k] = (sum.x + sum.z) + (sum.y + sum.w);
  }
  add_rows(squares, teams_a, lanes);
#endif

#if SPLITS > 1
#if PHASE != 2
  if (lid == 0) {
    FOR_ROWS give(slots + (k * SPLITS + piece) * SLOT, (float4)(squares[k], 0.0f, 0.0f, 0.0f), tag);
  }
#endif
#if PHASE != 1
  FOR_ROWS squares[k] = lid < SPLITS ? take(slots + (k * SPLITS + lid) * SLOT, tag).x : 0.0f;
  add_rows(squares, teams_b, lanes);
#endif
#endif

#if PHASE != 1
  float scale[RY];
  FOR_ROWS scale[k] = 1.0f / sqrt(squares[k] / (float)cols + eps);
  const int columns_left = (int)((cols + 3) / 4) - place;
  __global const float4* gamma_from = (__global const float4*)gamma + place;
#define RESULT(PART, k, factor) (PART) * scale[k] * shifted(factor, span[k].shift)
  FOR_CHUNK {
    // The rows share what is read of gamma.
    const Columns factor = columns_together(gamma_from, j, place, columns_left);
    FOR_ROWS store_whole(RESULT(part[k][j], k, factor), j, span[k],
                         (__global float4*)y + span[k].first);
  }
  FOR_ROWS if (has_cut(span[k])) {
    __global float4* to = (__global float4*)y + span[k].first;
    for (int is_last = 0; is_last < 2; ++is_last) {
      if (!(is_last ? has_last(span[k]) : span[k].begin)) continue;
      const int j = is_last ? (span[k].left - 1) / LX : 0;
      const Columns factor = columns_at(gamma_from, j, place, columns_left);
      const float4 own_part = is_last ? last_of(part[k], span[k]) : part[k][0];
      const float4 result = RESULT(own_part, k, factor);
      if (is_last) store_last(result, span[k], to);
      else store_first(result, span[k], to);
    }
  }
#endif
}
#endif
