// y = exp(x - max) / sum over rows of `cols` elements, each read from memory once; how items lie over
// rows: kernels/common/rows.cl. (Rows of any length on devices without local memory of their own:
// softmax.cl.)
// The maximum starts at -FLT_MAX: elements of -inf then weigh zero, and a row of nothing else
// divides 0 by 0. NaN never wins a maximum but spreads through exp and the sum.

// 1 / x to the last bit or two; devices may divide less exactly than the bound allows.
float reciprocal(float x) {
  const float r = 1.0f / x;
  return fma(fma(-x, r, 1.0f), r, r);
}

#if FORM == 2
__kernel GROUP_SIZE void softmax(
    __global const float* restrict x, __global float* restrict y, long rows, long cols) {
  __local float block[BLOCK] __attribute__((aligned(16)));
  __local float teams[TEAM_SCRATCH];
  __local float lanes[LANE_SCRATCH];
  const int lid = get_local_id(0);
  const long first = (long)get_group_id(0) * LY;
  const int width = (int)cols;
  const int count = (int)min(rows - first, (long)LY) * width;
  const int shift = stage_in(x, first * cols, count, block);

  __local float* own = block + shift + lid / LX * width + lid % LX;
  const bool has_last = lid % LX + (CHUNK - 1) * LX < width;
  float part[CHUNK];
  float largest = -FLT_MAX;
  FOR_CHUNK {
    part[j] = j < CHUNK - 1 || has_last ? own[j * LX] : -INFINITY;
    largest = fmax(largest, part[j]);
  }
  max_rows(&largest, teams, lanes);
  float sum = 0.0f;
  FOR_CHUNK {
    part[j] = exp(part[j] - largest);
  }
  ADD_CHUNK(float, sum, part)
  add_rows(&sum, teams, lanes);
  const float scale = reciprocal(sum);
  FOR_CHUNK {
    if (j < CHUNK - 1 || has_last) own[j * LX] = part[j] * scale;
  }
  stage_out(block, first * cols, count, y);
}
#endif

#if FORM == 1
__kernel GROUP_SIZE void softmax(
    __global const float* restrict x, __global float* restrict y, long rows, long cols SPLIT_PARAMS) {
  // Sums alternate between these two.
  __local float teams_a[TEAM_SCRATCH];
  __local float teams_b[TEAM_SCRATCH];
  __local float lanes[LANE_SCRATCH];
  BEGIN_ROWS(-INFINITY)

  float largest[RY];
  FOR_ROWS {
    float4 high = (float4)(-FLT_MAX);
    FOR_CHUNK high = fmax(high, part[k][j]);
    largest[k] = fmax(fmax(high.x, high.y), fmax(high.z, high.w));
  }
#if PHASE != 2
  max_rows(largest, teams_a, lanes);
  float total[RY];
  FOR_ROWS {
    float4 sum = 0.0f;
    FOR_CHUNK part[k][j] = exp(part[k][j] - largest[k]);
    ADD_CHUNK(float4, sum, part[k])
    total[k] = (sum.x + sum.z) + (sum.y + sum.w);
  }
  add_rows(total, teams_b, lanes);
#endif

#if SPLITS > 1
#if PHASE != 2
  if (lid == 0) {
    FOR_ROWS give(slots + (k * SPLITS + piece) * SLOT,
                  (float4)(largest[k], total[k], 0.0f, 0.0f), tag);
  }
#endif
#if PHASE != 1
  float4 theirs[RY];
  float top[RY];
  FOR_ROWS {
    theirs[k] = (float4)(-FLT_MAX, 0.0f, 0.0f, 0.0f);
    if (lid < SPLITS) theirs[k] = take(slots + (k * SPLITS + lid) * SLOT, tag);
    top[k] = theirs[k].x;
  }
  max_rows(top, teams_a, lanes);
  float whole[RY];
  FOR_ROWS whole[k] = theirs[k].y * weight_of(theirs[k].x, top[k]);
  add_rows(whole, teams_b, lanes);
#endif
#endif

#if PHASE != 1
  FOR_ROWS {
#if PHASE == 2
    const float scale = reciprocal(whole[k]);
    FOR_CHUNK part[k][j] = exp(part[k][j] - top[k]);
#elif SPLITS > 1
    const float scale = weight_of(largest[k], top[k]) * reciprocal(whole[k]);
#else
    const float scale = reciprocal(total[k]);
#endif
    __global float4* to = (__global float4*)y + span[k].first;
    FOR_CHUNK store_whole(part[k][j] * scale, j, span[k], to);
    if (has_cut(span[k])) {
      if (span[k].begin) store_first(part[k][0] * scale, span[k], to);
      if (has_last(span[k])) store_last(last_of(part[k], span[k]) * scale, span[k], to);
    }
  }
#endif
}
#endif
