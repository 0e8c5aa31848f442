// y = (x - mean) / sqrt(variance + eps) · gamma + beta over rows of `cols` elements, each read from
// memory once; how items lie over rows: kernels/common/rows.cl. (Rows of any length on devices
// without local memory of their own: layernorm.cl.)
// The sum carries its rounding errors along and the mean is two floats, because results near the
// mean are only as good as the mean itself; the variance is that of x - mean, never E[x²] - E[x]².
// Groups that share a row take the squares about the mean of their part and merge them (Chan, Golub
// & LeVeque 1979).

// The quotient as two floats; n is rounded to a float once, for both.
float2 mean_of(float2 total, float n) {
  const float high = (total.x + total.y) / n;
  return (float2)(high, (fma(-high, n, total.x) + total.y) / n);
}

#if FORM == 2
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void layernorm(
    __global const float* restrict x, __global const float* restrict gamma,
    __global const float* restrict beta, __global float* restrict y, long rows, long cols,
    float eps) {
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
  float4 sum = 0.0f;
  float4 lost = 0.0f;
  float squares = 0.0f;
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
  const float2 mean = mean_of(total, (float)width);
#if LX <= 32
  FOR_CHUNK {
    part[j] = (part[j] - mean.x) - mean.y;
    if (j < CHUNK - 1 || has_last) squares = fma(part[j], part[j], squares);
  }
#else
#define APART(j) ((own[j] - mean.x) - mean.y)
#pragma unroll 4
  for (int j = place; j < width; j += LX) squares = fma(APART(j), APART(j), squares);
#endif
  add_rows(&squares, teams_b, lanes);
  const float scale = 1.0f / sqrt(squares / (float)width + eps);
#if LX <= 32
  FOR_CHUNK {
    const int at = place + j * LX;
    if (j < CHUNK - 1 || has_last) own[at] = fma(part[j] * scale, gamma[at], beta[at]);
  }
#else
#pragma unroll 4
  for (int j = place; j < width; j += LX) own[j] = fma(APART(j) * scale, gamma[j], beta[j]);
#endif
  stage_out(block, first * cols, count, y);
}
#endif

#if FORM == 1
// Of gamma or beta the elements that go with vector `at` of a row that starts `shift` elements into
// its first vector: from two aligned vectors, of which the neighbouring items read one as well. Lanes
// outside the row hold anything. `shift` is a constant where it is called.
INLINE float4 column_vector(__global const float* p, int at, int shift, int last) {
  __global const float4* whole = (__global const float4*)p;
  const float4 high = whole[min(at, last)];
  if (shift == 0) return high;
  const float4 low = whole[max(at - 1, 0)];
  return shift == 1   ? (float4)(low.w, high.xyz)
         : shift == 2 ? (float4)(low.zw, high.xy)
                      : (float4)(low.yzw, high.x);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void layernorm(
    __global const float* restrict x, __global const float* restrict gamma,
    __global const float* restrict beta, __global float* restrict y, long rows, long cols, float eps
#if SPLITS > 1
    , __global float4* partials, __global uint* meetings
#endif
    ) {
  __local float2 teams_a[TEAM_SCRATCH];
  __local float teams_b[TEAM_SCRATCH];
  __local float lanes[LANE_SCRATCH];
  const int lid = get_local_id(0);
#if SPLITS > 1
  __local uint drawn;
  const uint number = group_number(meetings, &drawn);
  const long block = number / SPLITS;
  const int piece = number % SPLITS;
#else
  const long block = get_group_id(0);
  const int piece = 0;
#endif
  const int place = piece * (LX * CHUNK) + lid % LX;
  Span span[RY];
  float4 part[RY][CHUNK];
  FOR_ROWS span[k] = span_of(ROW(block, k), rows, cols, place);
  FOR_ROWS load_row(x, span[k], place, 0.0f, part[k]);

  float2 total[RY];
  float2 mean[RY];
  float squares[RY];
#if PHASE != 2
  FOR_ROWS {
    float4 sum = part[k][0];
    float4 lost = 0.0f;
    _Pragma("unroll") for (int j = 1; j < CHUNK; ++j) add_exactly(&sum, &lost, part[k][j]);
    total[k] = add_lanes_exactly(sum, lost);
  }
#endif
#if PHASE != 2
  add_rows_exactly(total, teams_a, lanes);
#if SPLITS > 1
  // Elements of the group's part.
  float share[RY];
  FOR_ROWS {
    const int begin = piece * (4 * LX * CHUNK);
    const long end = min((long)begin + 4 * LX * CHUNK, span[k].shift + cols);
    share[k] = (float)max(end - max(begin, span[k].shift), 0L);
    mean[k] = share[k] > 0.0f ? mean_of(total[k], share[k]) : 0.0f;
  }
#else
  FOR_ROWS mean[k] = mean_of(total[k], (float)cols);
#endif
  FOR_ROWS {
    float4 sum = 0.0f;
    FOR_CHUNK {
      float4 apart = (part[k][j] - mean[k].x) - mean[k].y;
      apart = keep_inside(apart, j, span[k], place, 0.0f);
      if (j * LX < span[k].left) sum = fma(apart, apart, sum);
    }
    squares[k] = (sum.x + sum.z) + (sum.y + sum.w);
  }
  add_rows(squares, teams_b, lanes);
#endif

#if SPLITS > 1
#if PHASE != 2
  if (lid == 0) {
    FOR_ROWS if (ROW(block, k) < rows) {
      partials[ROW(block, k) * SPLITS + piece] =
          (float4)(total[k].x, total[k].y, squares[k], share[k]);
    }
  }
#endif
#if PHASE == 0
  meet(meetings + 1 + 2 * block, SPLITS);
#endif
#if PHASE != 1
  float4 theirs[RY];
  FOR_ROWS {
    theirs[k] = lid < SPLITS && ROW(block, k) < rows
                    ? load_shared(partials + ROW(block, k) * SPLITS + lid)
                    : (float4)(0.0f);
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
  FOR_ROWS scale[k] = 1.0f / sqrt(squares[k] / (float)cols + eps);
  const int last_columns = (int)((cols - 1) / 4);
#define COLUMNS(p, j, SHIFT) column_vector(p, place + (j)*LX, SHIFT, last_columns)
#define APART(j) (part[k][j] - mean[k].x - mean[k].y)
#define SCALED(j, SHIFT) fma(APART(j) * scale[k], COLUMNS(gamma, j, SHIFT), COLUMNS(beta, j, SHIFT))
#if ALIGNED
  // The rows share gamma and beta; the first one exists when any does.
  FOR_CHUNK if (j * LX < span[0].left) {
    const float4 factor = COLUMNS(gamma, j, 0);
    const float4 addend = COLUMNS(beta, j, 0);
    FOR_ROWS if (j * LX < span[k].left) {
      store_vector(fma(APART(j) * scale[k], factor, addend),
                   (__global float4*)y + span[k].first + j * LX);
    }
  }
#else
  // Four copies instead of selections in each vector: the items of a warp have one row as a rule.
#define SCALED0(j) SCALED(j, 0)
#define SCALED1(j) SCALED(j, 1)
#define SCALED2(j) SCALED(j, 2)
#define SCALED3(j) SCALED(j, 3)
  FOR_ROWS {
    if (span[k].shift == 0) {
      STORE_ROW(y, span[k], place, SCALED0)
    } else if (span[k].shift == 1) {
      STORE_ROW(y, span[k], place, SCALED1)
    } else if (span[k].shift == 2) {
      STORE_ROW(y, span[k], place, SCALED2)
    } else {
      STORE_ROW(y, span[k], place, SCALED3)
    }
  }
#endif
#endif
}
#endif
