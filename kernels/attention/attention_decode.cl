// o = softmax(scale·q·kᵀ)·v for decoding (attention.hpp has the maths; attention_rows.cl says what a row is),
// where reading k and v once is all the time there is. Sizes are arguments; head_dim D, ROWS (all of
// them) and the tuning come by -D (attention/opencl.cpp).
//
// A group of W items walks over the keys of one split of a kv head. LANES neighbouring items share a
// key, and each holds all rows of q and o at VPL vectors of head_dim, so that k and v are read with
// neighbouring vectors and a score needs log2(LANES) exchanges. A step takes NB keys for each of the
// W / LANES teams; steps go to the splits round robin. Its k and v arrive STAGES - 1 steps after they were
// asked for, or with STAGES=1 straight in registers: every item copies exactly what it reads itself,
// so nothing waits for another item. Each team has a maximum and a
// sum of its own; teams are put together at the end. Splits are put together by the group that
// finishes last where the device keeps order between groups (-DFUSED=1), else by attention_merge.cl: a second
// kernel takes longer to start than a short context to read.
//
// Scores are counted in base 2: q is multiplied by scale·log2(e). The maximum starts at -FLT_MAX.

#define TEAMS (W / LANES)
#define VECTORS ((D + VW - 1) / VW)
#define VPL ((VECTORS + LANES - 1) / LANES)
#define DL (VPL * VW)
#define DP (DL * LANES)
#define STAGE (2 * NB * VPL * W * VW)
#define RING (STAGES > 1 ? STAGES * STAGE : 0)
#define TEAM_SUMS (TEAMS * ROWS * DP)
#define LOCAL_FLOATS (RING > TEAM_SUMS ? RING : TEAM_SUMS)

#if VW == 4
#define COPY copy_async4
typedef float4 floatw;
#define LOAD_PART(p) load_shared((__global const float4*)(p))
#elif VW == 2
#define COPY copy_async2
typedef float2 floatw;
#define LOAD_PART(p) ((float2)(load_shared1(p), load_shared1((p) + 1)))
#else
#define COPY copy_async1
typedef float floatw;
#define LOAD_PART(p) load_shared1(p)
#endif

// Asks for k and v of a step, where this item's first vectors are given; of `keys` keys from the
// step's first one on.
void copy_step(__local float* to, __global const float* k, __global const float* v, int keys) {
  const int lid = get_local_id(0);
#pragma unroll
  for (int n = 0; n < NB; ++n) {
    const bool is_key = lid / LANES + n * TEAMS < keys;
#pragma unroll
    for (int j = 0; j < VPL; ++j) {
      const bool is_column = VECTORS % LANES == 0 || j * LANES + lid % LANES < VECTORS;
      const int count = is_key && is_column ? VW : 0;
      const int from = n * (TEAMS * D) + j * (LANES * VW);
      COPY(to + ((n * VPL + j) * W + lid) * VW, k + from, count);
      COPY(to + (((NB + n) * VPL + j) * W + lid) * VW, v + from, count);
    }
  }
}

float highest_of(__local const float* highs) {
  float highest = -INFINITY;
#pragma unroll
  for (int t = 0; t < TEAMS; ++t) highest = fmax(highest, highs[t]);
  return highest;
}

// One group per (batch, kv head, split of the keys). With splits, `parts` takes the unnormalised
// rows [batch·kv_heads, splits, ROWS, D], `state` what attention_merge.cl says, and `arrived`, zero before and
// after, counts the groups of a head that have finished.
__kernel __attribute__((reqd_work_group_size(W, 1, 1))) void decode(
    __global const float* restrict q, __global const float* restrict k,
    __global const float* restrict v, __global float* restrict o, __global float* parts,
    __global float* state, __global uint* arrived, int group, int q_len, int kv_len, int splits,
    int causal, float scale2, OPTIONS) {
  __local float ring[LOCAL_FLOATS] __attribute__((aligned(16)));
  __local float highs[ROWS * TEAMS];
  __local float totals[ROWS * TEAMS];
#if CODE_PATH == 0
  __local float scratch[W];
#else
  __local float* scratch = 0;
#endif

  const int lid = get_local_id(0);
  const int team = lid / LANES;
  const int lane = lid % LANES;
  const int split = (uint)get_group_id(0) % splits;
  const int head = (uint)get_group_id(0) / splits;
  const int head0 = head * group;
  const int held = HELD(head);
  const int first_key =
      first_visible(visible_keys(0, group, q_len, held, causal), window) + split * (TEAMS * NB);
  const int stride = splits * (TEAMS * NB);
  const int end_key = visible_keys(ROWS - 1, group, q_len, held, causal);
  const long start = ((long)head * kv_len + first_key + team) * D + lane * VW;
  __global const float* next_k = k + start;
  __global const float* next_v = v + start;
  int next_keys = end_key - first_key;  // not asked for yet

#define ADVANCE()                 \
  next_k += (long)stride * D;     \
  next_v += (long)stride * D;     \
  next_keys -= stride;
#if STAGES == 1
  float next_y[2][NB][DL];  // k and v of the next step
#define ASK()                                                                            \
  {                                                                                      \
    _Pragma("unroll") for (int n = 0; n < NB; ++n)                                       \
    _Pragma("unroll") for (int j = 0; j < VPL; ++j) {                                    \
      const bool is_column = VECTORS % LANES == 0 || j * LANES + lane < VECTORS;         \
      const int at = n * (TEAMS * D) + j * (LANES * VW);                                 \
      if (team + n * TEAMS < next_keys && is_column) {                                   \
        GET_VECTOR(next_y[0][n] + j * VW, __global, next_k + at);                        \
        GET_VECTOR(next_y[1][n] + j * VW, __global, next_v + at);                        \
      } else {                                                                           \
        _Pragma("unroll") for (int c = 0; c < VW; ++c) next_y[0][n][j * VW + c] =        \
            next_y[1][n][j * VW + c] = 0.0f;                                             \
      }                                                                                  \
    }                                                                                    \
    ADVANCE();                                                                           \
  }
  ASK();
// Vector j of k (which = 0) or v of this step's n-th key.
#define GET_STEP(to, which, n, j)                                                        \
  _Pragma("unroll") for (int c = 0; c < VW; ++c) (to)[c] = step_y[which][n][(j) * VW + c];
#else
  int next_slot = 0;
#define ASK()                                                                          \
  {                                                                                    \
    if (next_keys > 0) copy_step(ring + next_slot * STAGE, next_k, next_v, next_keys); \
    copies_commit();                                                                   \
    ADVANCE();                                                                         \
    next_slot = next_slot + 1 == STAGES ? 0 : next_slot + 1;                           \
  }
  for (int stage = 0; stage < STAGES - 1; ++stage) ASK();
#define GET_STEP(to, which, n, j) \
  GET_VECTOR(to, __local, from + ((which * NB + n) * VPL + j) * W * VW)
#endif

  float x[ROWS][DL];
  float sum[ROWS][DL];
  float high[ROWS];
  float total[ROWS];
#if MASKED
  int begins[ROWS], sees[ROWS];  // where what a row sees begins and ends, from this team's first key on
#endif
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    __global const float* from = q + row_start(r, group, q_len, head0);
#pragma unroll
    for (int j = 0; j < DL; ++j) {
      const int d = (j / VW * LANES + lane) * VW + j % VW;
      x[r][j] = d < D ? from[d] * scale2 : 0.0f;
      sum[r][j] = 0.0f;
    }
    high[r] = -FLT_MAX;
    total[r] = 0.0f;
#if MASKED
    const int end = visible_keys(r, group, q_len, held, causal);
    sees[r] = (end < end_key ? end : end_key) - first_key - team;
    begins[r] = first_visible(end, window) - first_key - team;
#endif
  }

#if STAGES > 1
  int slot = 0;
#endif
  int keys = end_key - first_key - team;  // left for this team, every TEAMS-th counts
  for (int done = 0; done < end_key - first_key; done += stride) {
#if STAGES == 1
    float step_y[2][NB][DL];
#pragma unroll
    for (int which = 0; which < 2; ++which)
#pragma unroll
      for (int n = 0; n < NB; ++n)
#pragma unroll
        for (int j = 0; j < DL; ++j) step_y[which][n][j] = next_y[which][n][j];
    ASK();
#else
    ASK();
    copies_wait(STAGES - 1);
    __local const float* from = ring + slot * STAGE + lid * VW;
    slot = slot + 1 == STAGES ? 0 : slot + 1;
#endif

    float s[NB][ROWS];
#pragma unroll
    for (int n = 0; n < NB; ++n) {
      float y[DL];
#pragma unroll
      for (int j = 0; j < VPL; ++j) GET_STEP(y + j * VW, 0, n, j);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        s[n][r] = 0.0f;
#pragma unroll
        for (int j = 0; j < DL; ++j) s[n][r] += x[r][j] * y[j];
      }
    }
#pragma unroll
    for (int n = 0; n < NB; ++n)
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        s[n][r] = near_add(s[n][r], scratch, LANES, 1);
#if SOFTCAP
        s[n][r] = cap * tanh(s[n][r] / cap);
#endif
#if MASK
        if (n * TEAMS < keys)
          s[n][r] += M_LOG2E_F * mask[(long)(r / group) * kv_len + first_key + team + done + n * TEAMS];
#endif
        if (n * TEAMS >= keys) s[n][r] = -INFINITY;
#if MASKED
        if (done + n * TEAMS < begins[r] || done + n * TEAMS >= sees[r]) s[n][r] = -INFINITY;
#endif
      }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float old = high[r];
#pragma unroll
      for (int n = 0; n < NB; ++n) high[r] = fmax(high[r], s[n][r]);
      const float shrink = fast_exp2(old - high[r]);
      total[r] *= shrink;
#pragma unroll
      for (int j = 0; j < DL; ++j) sum[r][j] *= shrink;
#pragma unroll
      for (int n = 0; n < NB; ++n) {
        s[n][r] = fast_exp2(s[n][r] - high[r]);
        total[r] += s[n][r];
      }
    }
#pragma unroll
    for (int n = 0; n < NB; ++n) {
      float y[DL];
#pragma unroll
      for (int j = 0; j < VPL; ++j) GET_STEP(y + j * VW, 1, n, j);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
#if MASKED
        // Not a product with weight zero: v may be NaN where this row does not see it.
        if (done + n * TEAMS >= begins[r] && done + n * TEAMS < sees[r])
#endif
#pragma unroll
          for (int j = 0; j < DL; ++j) sum[r][j] += s[n][r] * y[j];
    }
    keys -= stride;
  }
  copies_wait(0);

  // Teams together. Their sums take the ring's place.
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    if (lane == 0) highs[r * TEAMS + team] = high[r];
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float factor = fast_exp2(high[r] - highest_of(highs + r * TEAMS));
    if (lane == 0) totals[r * TEAMS + team] = total[r] * factor;
#pragma unroll
    for (int j = 0; j < DL; ++j)
      ring[(team * ROWS + r) * DP + (j / VW * LANES + lane) * VW + j % VW] = sum[r][j] * factor;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const long part0 = ((long)head * splits + split) * ROWS;
  for (int i = lid; i < ROWS * VECTORS; i += W) {
    const int r = i / VECTORS;
    const int d = i % VECTORS * VW;
    float weights = 0.0f;
    floatw value = 0.0f;
#pragma unroll
    for (int t = 0; t < TEAMS; ++t) {
      weights += totals[r * TEAMS + t];
      value += *(__local const floatw*)(ring + (t * ROWS + r) * DP + d);
    }
    // The first key of this split's steps that this row may see lies beyond what it sees.
    const int seen_to = visible_keys(r, group, q_len, held, causal);
    const int skipped = max(first_visible(seen_to, window) - first_key, 0);
    const int next = skipped % stride < TEAMS * NB ? skipped : (skipped / stride + 1) * stride;
    const bool sees_none = seen_to <= first_key + next;
    if (splits == 1) {
      *(__global floatw*)(o + row_start(r, group, q_len, head0) + d) =
          sees_none ? (floatw)(0.0f) : value / weights;
    } else {
      *(__global floatw*)(parts + (part0 + r) * D + d) = value;
      if (d == 0) {
        // -inf: this row sees no key of this split.
        state[(part0 + r) * 2] = sees_none ? -INFINITY : highest_of(highs + r * TEAMS);
        state[(part0 + r) * 2 + 1] = weights;
      }
    }
  }
#if FUSED
  // The last group of a head merges its splits, as attention_merge.cl does.
  if (splits == 1) return;
  __local uint flag;
  if (!comes_last(arrived + head, splits, &flag)) return;
  parts += (long)head * splits * (ROWS * D);
  state += (long)head * splits * (ROWS * 2);
  for (int i = lid; i < ROWS * VECTORS; i += W) {
    const int r = i / VECTORS;
    const int d = i % VECTORS * VW;
    float highest = -INFINITY;
    float weights = 0.0f;
    floatw value = 0.0f;
    // Asked for together, since a read takes half a microsecond and nothing else runs.
    for (int p0 = 0; p0 < splits; p0 += 12) {
      float highs_of[12], totals_of[12];
      floatw parts_of[12];
#pragma unroll
      for (int i = 0; i < 12; ++i) {
        const int at = (p0 + i < splits ? p0 + i : splits - 1) * ROWS + r;
        highs_of[i] = load_shared1(state + 2 * at);
        totals_of[i] = load_shared1(state + 2 * at + 1);
        parts_of[i] = LOAD_PART(parts + at * D + d);
      }
      const float old = highest;
#pragma unroll
      for (int i = 0; i < 12; ++i) highest = fmax(highest, highs_of[i]);
      const float base = highest == -INFINITY ? 0.0f : highest;
      const float shrink = fast_exp2(old - base);
      weights *= shrink;
      value *= shrink;
#pragma unroll
      for (int i = 0; i < 12; ++i) {
        const float factor = fast_exp2(highs_of[i] - base);
        if (p0 + i < splits) {
          weights += factor * totals_of[i];
          value += factor * parts_of[i];
        }
      }
    }
    *(__global floatw*)(o + row_start(r, group, q_len, head0) + d) =
        highest == -INFINITY ? (floatw)(0.0f) : value / weights;
  }
#endif
}
