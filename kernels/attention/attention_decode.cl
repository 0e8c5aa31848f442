// o = softmax(scale·q·kᵀ)·v for decoding (attention.hpp has the maths; attention_rows.cl says what a row is),
// where reading k and v once is all the time there is. Sizes are arguments; head_dim D, ROWS (all of
// them) and the tuning come by -D (attention/opencl.cpp).
//
// A group of W items walks over the keys of one split of a kv head. LANES neighbouring items share a
// key, and each holds all rows of q and o at VPL vectors of head_dim, so that k and v are read with
// neighbouring vectors and a score needs log2(LANES) exchanges. A step takes NB keys for each of the
// W / LANES teams; steps go to the splits round robin. Its k and v arrive STAGES - 1 steps after they were
// asked for: every item copies exactly what it reads itself, so nothing waits for another item. Each team has a maximum and a
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
#define RING (STAGES * STAGE)
#define TEAM_SUMS (TEAMS * ROWS * DP)
#define LOCAL_FLOATS (RING > TEAM_SUMS ? RING : TEAM_SUMS)

#define COPY CAT(copy_async, VW)

// Vector j of a step's n-th key (which = 0) or value (1); step: where this item's vectors begin.
#define GET_STEP(to, which, n, j) \
  GET_VECTOR(to, __local, step + ((which * NB + n) * VPL + j) * W * VW)

// Asks for k and v of a step, where this item's first vectors are given; of `keys` keys from the
// step's first one on.
void copy_step(__local float* to, __global const float* k, __global const float* v, int keys) {
  const int lid = get_local_id(0);
  EACH(n, NB) {
    const bool is_key = lid / LANES + n * TEAMS < keys;
    EACH(j, VPL) {
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
  EACH(t, TEAMS) highest = fmax(highest, highs[t]);
  return highest;
}

// The scores of a step's keys, with what the options make of them; -inf for those that a row does not see.
// key: this team's first key of the step; begins, sees: what each row sees, keys: what exists, from it on.
INLINED void score_step(float (*s)[ROWS], float (*x)[DL], __local const float* step,
                        __global const float* mask, int key, const int* begins, const int* sees, int keys, int group, int kv_len,
                        float cap, __local float* scratch) {
  EACH(n, NB) {
    float y[DL];
    EACH(j, VPL) GET_STEP(y + j * VW, 0, n, j);
    EACH(r, ROWS) {
      s[n][r] = 0.0f;
      EACH(j, DL) s[n][r] += x[r][j] * y[j];
    }
  }
  EACH(n, NB) EACH(r, ROWS) {
    s[n][r] = near_add(s[n][r], scratch, LANES, 1);
#if SOFTCAP
    s[n][r] = cap * tanh(s[n][r] / cap);
#endif
#if MASK
    if (n * TEAMS < keys) s[n][r] += M_LOG2E_F * mask[(long)(r / group) * kv_len + key + n * TEAMS];
#endif
    if (n * TEAMS >= keys) s[n][r] = -INFINITY;
#if MASKED
    if (n * TEAMS < begins[r] || n * TEAMS >= sees[r]) s[n][r] = -INFINITY;
#endif
  }
}

// The scores become weights and sums take the step's values.
INLINED void add_step(float (*s)[ROWS], float (*sum)[DL], float* high, float* total,
                      __local const float* step, const int* begins, const int* sees) {
  EACH(r, ROWS) {
    const float old = high[r];
    EACH(n, NB) high[r] = fmax(high[r], s[n][r]);
    const float shrink = fast_exp2(old - high[r]);
    total[r] *= shrink;
    EACH(j, DL) sum[r][j] *= shrink;
    EACH(n, NB) {
      s[n][r] = fast_exp2(s[n][r] - high[r]);
      total[r] += s[n][r];
    }
  }
  EACH(n, NB) {
    float y[DL];
    EACH(j, VPL) GET_STEP(y + j * VW, 1, n, j);
    EACH(r, ROWS)
#if MASKED
      // Not a product with weight zero: v may be NaN where this row does not see it.
      if (n * TEAMS >= begins[r] && n * TEAMS < sees[r])
#endif
        EACH(j, DL) sum[r][j] += s[n][r] * y[j];
  }
}

// All teams' highs, totals relative to the largest of them, and sums [team][row][column] into local memory.
INLINED void gather_teams(__local float* sums, __local float* highs, __local float* totals,
                          float (*sum)[DL], const float* high, const float* total, int team,
                          int lane) {
  EACH(r, ROWS) if (lane == 0) highs[r * TEAMS + team] = high[r];
  barrier(CLK_LOCAL_MEM_FENCE);
  EACH(r, ROWS) {
    const float factor = fast_exp2(high[r] - highest_of(highs + r * TEAMS));
    if (lane == 0) totals[r * TEAMS + team] = total[r] * factor;
    EACH(j, DL)
      sums[(team * ROWS + r) * DP + (j / VW * LANES + lane) * VW + j % VW] = sum[r][j] * factor;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
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

  int next_slot = 0;
  int slot = 0;
#define ASK()                                                                        \
  if (next_keys > 0) copy_step(ring + next_slot * STAGE, next_k, next_v, next_keys); \
  copies_commit();                                                                   \
  next_slot = next_slot + 1 == STAGES ? 0 : next_slot + 1;                           \
  next_k += (long)stride * D;                                                        \
  next_v += (long)stride * D;                                                        \
  next_keys -= stride;
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    ASK()
  }

  float x[ROWS][DL];
  float sum[ROWS][DL];
  float high[ROWS];
  float total[ROWS];
  int begins[ROWS], sees[ROWS];  // where what a row sees begins and ends, from this step's first key on
  EACH(r, ROWS) {
    __global const float* from = q + row_start(r, group, q_len, head0);
    EACH(j, DL) {
      const int d = (j / VW * LANES + lane) * VW + j % VW;
      x[r][j] = d < D ? from[d] * scale2 : 0.0f;
      sum[r][j] = 0.0f;
    }
    high[r] = -FLT_MAX;
    total[r] = 0.0f;
    const int end = visible_keys(r, group, q_len, held, causal);
    sees[r] = min(end, end_key) - first_key - team;
    begins[r] = first_visible(end, window) - first_key - team;
  }

  int keys = end_key - first_key - team;  // left for this team, every TEAMS-th counts
  for (int key = first_key + team; key - team < end_key; key += stride) {
    ASK()
    copies_wait(STAGES - 1);
    __local const float* step = ring + slot * STAGE + lid * VW;
    slot = slot + 1 == STAGES ? 0 : slot + 1;
    float s[NB][ROWS];
    score_step(s, x, step, mask, key, begins, sees, keys, group, kv_len, cap, scratch);
    add_step(s, sum, high, total, step, begins, sees);
    keys -= stride;
    EACH(r, ROWS) {
      begins[r] -= stride;
      sees[r] -= stride;
    }
  }
  copies_wait(0);

  gather_teams(ring, highs, totals, sum, high, total, team, lane);
  const long part0 = ((long)head * splits + split) * ROWS;
  for (int i = lid; i < ROWS * VECTORS; i += W) {
    const int r = i / VECTORS;
    const int d = i % VECTORS * VW;
    float weights = 0.0f;
    floatw value = 0.0f;
    EACH(t, TEAMS) {
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
      if (d == 0) put_state(state, part0 + r, sees_none, highest_of(highs + r * TEAMS), weights);
    }
  }
#if FUSED
  // The last group of a head merges its splits, as attention_merge.cl does.
  if (splits == 1) return;
  __local uint flag;
  if (!comes_last(arrived + head, splits, &flag)) return;
  const long row0 = (long)head * splits * ROWS;
  for (int i = lid; i < ROWS * VECTORS; i += W) {
    const int r = i / VECTORS;
    const int d = i % VECTORS * VW;
    *(__global floatw*)(o + row_start(r, group, q_len, head0) + d) =
        merged(parts + (row0 + r) * D, state + (row0 + r) * 2, ROWS, D, d, splits);
  }
#endif
}
