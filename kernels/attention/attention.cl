// o = softmax(scale·q·kᵀ)·v in tiles with online softmax (attention.hpp has the maths): scores live
// only in local memory. Sizes are arguments, head_dim and the tile come by -D
// (attention/opencl.cpp says what each means and why); v and o are DV wide. With -DLENGTHS=1 a row of
// the batch holds lengths[row] keys and has room for kv_len.
//
// A group of W items owns BQ rows of one kv head (attention_rows.cl) and walks over its keys, BK at a time. Per
// tile of keys:
//   1. scores, transposed: st[key][row] = scale·Σ_d k[key][d]·qt[d][row]. Queries are transposed
//      once per group; keys need no transposition, each value of k meets a vector of rows. With
//      -DSOFTCAP=1 they become cap·tanh(s / cap), with -DMASK=1 a mask [q_len,kv_len] is added.
//   2. per row the new maximum, p = exp(s - maximum), the sum, and by how much old sums shrink.
//   3. o[row][:] = o[row][:]·shrink + Σ_key p[key][row]·v[key][:].
// The maximum starts at -FLT_MAX, as in softmax.cl. An invisible key gets the score -inf, hence
// p = 0, and is left out of step 3 for the rows that may not see it, because 0·NaN is NaN.

#if VQ == 1
typedef float floatq;
#else
typedef CAT(float, VQ) floatq;
#endif

#define LDQ (BQ + PAD)
#define LDV (DP + PAD)                    // of values
#define LDK ((D > DP ? D : DP) + PAD)     // of keys, in the same memory
#define Q_VECTORS (BQ / VQ)
#define S_TILES_Q (BQ / (TQ * VQ))
#define S_TILES (BK / TK * S_TILES_Q)
#define O_TILES_D (DP / (TV * V))
#define O_TILES (BQ / TM * O_TILES_D)
#define O_PER_ITEM ((O_TILES + W - 1) / W)
// Items that share the keys of a row in step 2.
#define SLICES (W > Q_VECTORS ? W / Q_VECTORS : 1)
// Items that share a row of the mask: so many neighbours read from a line of memory.
#define MASK_KEYS (W % 16 == 0 ? 16 : 1)
// Accumulators of o: registers where an item has few, else memory, with loops that stay rolled.
#if RESIDENT
#define TILES EACH
#else
#define TILES(i, count) for (int i = 0; i < (count); ++i)
#endif

// Step 1 without options: st = scale·k·qt for `keys` keys, which begin at k or, in local memory, at kv.
void multiply_keys(__local float* st, __local const float* qt, __global const element* k,
                   __local const float* kv, int keys, float scale) {
  for (int t = get_local_id(0); t < S_TILES; t += W) {
    const int key = t / S_TILES_Q * TK;
    const int row = t % S_TILES_Q * (TQ * VQ);
    floatq s[TK][TQ];
    EACH(i, TK) EACH(j, TQ) s[i][j] = 0.0f;
#if K_LOCAL
#define KEY_AT(p, d) (p)[d]
    __local const float* x[TK];
    EACH(i, TK) x[i] = kv + (key + i) * LDK;
#else
#define KEY_AT(p, d) LOAD_ONE(p, d)
    // Keys past the tile's end repeat its last one; their scores become -inf later.
    __global const element* x[TK];
    EACH(i, TK) x[i] = k + (long)(key + i < keys ? key + i : keys - 1) * D;
#endif
    for (int d = 0; d < D; ++d) {
      floatq y[TQ];
      EACH(j, TQ) y[j] = *(__local const floatq*)(qt + d * LDQ + row + j * VQ);
      EACH(i, TK) EACH(j, TQ) s[i][j] += KEY_AT(x[i], d) * y[j];
    }
    EACH(i, TK) EACH(j, TQ)
      *(__local floatq*)(st + (key + i) * LDQ + row + j * VQ) = s[i][j] * scale;
  }
}

// What the options make of the scores of `keys` keys from key0 on, and -inf for those that a row does not
// see. Ends with a barrier.
INLINED void apply_options(__local float* st, __global const float* mask, const Place at, int key0, int keys,
                   __local const int* sees, __local const int* from, int group, int kv_len,
                   float cap) {
  const int lid = get_local_id(0);
#if SOFTCAP
  for (int i = lid; i < keys * Q_VECTORS; i += W) {
    __local floatq* s = (__local floatq*)(st + i / Q_VECTORS * LDQ + i % Q_VECTORS * VQ);
    *s = cap * tanh(*s / cap);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if MASK
  for (int row = lid / MASK_KEYS; row < BQ; row += W / MASK_KEYS) {
    const int r = min(at.row0 + row, at.rows - 1);
    __global const float* add = mask + (long)(r / group) * kv_len + key0;
    for (int key = lid % MASK_KEYS; key < keys; key += MASK_KEYS) st[key * LDQ + row] += add[key];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  if (keys < BK || at.seen_by_all < key0 + BK || at.hidden > key0) {
    for (int i = lid; i < BK * BQ; i += W) {
      const int key = i / BQ;
      const int row = i % BQ;
      if (key >= keys || key0 + key >= sees[row] || key0 + key < from[row])
        st[key * LDQ + row] = -INFINITY;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// `keys` values from v on into local memory, zeros beyond them and beyond DV.
void load_values(__local float* kv, __global const element* v, int keys) {
  for (int i = get_local_id(0); i < BK * (DP / V); i += W) {
    const int key = i / (DP / V);
    const int d = i % (DP / V) * V;
    floatv x = 0.0f;
    if (key < keys) {
      __global const element* at = v + (long)key * DV + d;
      if (d + V <= DV)
        x = GLOAD(at);
      else if (d < DV)
        x = load_some(at, DV - d, 0.0f);
    }
    *(__local floatv*)(kv + key * LDV + d) = x;
  }
}

// Step 2: scores become weights; per row the maximum, the sum, and by how much what was added before
// shrinks. The caller's barrier shows total.
void weigh(__local float* st, __local float* partial, __local float* highest, __local float* total,
           __local float* shrink) {
  const int lid = get_local_id(0);
  for (int u = lid; u < Q_VECTORS * SLICES; u += W) {
    const int row = u % Q_VECTORS * VQ;
    const int slice = u / Q_VECTORS;
    floatq high = -FLT_MAX;
    for (int key = slice; key < BK; key += SLICES) {
      const floatq s = *(__local const floatq*)(st + key * LDQ + row);
      high = s > high ? s : high;
    }
    *(__local floatq*)(partial + slice * BQ + row) = high;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int row = lid; row < BQ; row += W) {
    const float old = highest[row];
    float high = old;
    for (int slice = 0; slice < SLICES; ++slice) {
      const float s = partial[slice * BQ + row];
      high = s > high ? s : high;
    }
    highest[row] = high;
    shrink[row] = exp(old - high);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int u = lid; u < Q_VECTORS * SLICES; u += W) {
    const int row = u % Q_VECTORS * VQ;
    const int slice = u / Q_VECTORS;
    const floatq high = *(__local const floatq*)(highest + row);
    floatq weights = 0.0f;
    for (int key = slice; key < BK; key += SLICES) {
      __local floatq* s = (__local floatq*)(st + key * LDQ + row);
      const floatq p = exp(*s - high);
      *s = p;
      weights += p;
    }
    *(__local floatq*)(partial + slice * BQ + row) = weights;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int row = lid; row < BQ; row += W) {
    float weights = 0.0f;
    for (int slice = 0; slice < SLICES; ++slice) weights += partial[slice * BQ + row];
    total[row] = total[row] * shrink[row] + weights;
  }
}

// Step 3: this item's tiles of o shrink and take `keys` weighted values from key0 on.
INLINED void add_values(floatv (*sum)[TM][TV], __local const float* st, __local const float* kv,
                        __local const float* shrink, __local const int* sees,
                        __local const int* from, int key0, int keys) {
  TILES(t, O_PER_ITEM) {
    const int tile = t * W + get_local_id(0);
    if (tile >= O_TILES) break;
    const int row = tile / O_TILES_D * TM;
    const int d = tile % O_TILES_D * (TV * V);
    floatv part[TM][TV];
    EACH(i, TM) EACH(j, TV) part[i][j] = sum[t][i][j] * shrink[row + i];
    // All rows of the tile see the keys of [begin, end); only some of them those around it.
    const int begin = clamp(from[row + TM - 1] - key0, 0, keys);
    const int end = clamp(sees[row] - key0, begin, keys);
    for (int key = begin; key < end; ++key) {
      floatv y[TV];
      EACH(j, TV) y[j] = *(__local const floatv*)(kv + key * LDV + d + j * V);
      EACH(i, TM) EACH(j, TV) part[i][j] += st[key * LDQ + row + i] * y[j];
    }
    const int last = clamp(sees[row + TM - 1] - key0, 0, keys);
    for (int key = max(from[row] - key0, 0); key < last; ++key) {
      if (key == begin && begin < end) {
        key = end - 1;
        continue;
      }
      EACH(i, TM)
        if (key0 + key >= from[row + i] && key0 + key < sees[row + i])
          EACH(j, TV)
            part[i][j] += st[key * LDQ + row + i] *
                          *(__local const floatv*)(kv + key * LDV + d + j * V);
    }
    EACH(i, TM) EACH(j, TV) sum[t][i][j] = part[i][j];
  }
}

// Columns from d on of a row of o that begins there; of a part.
void put_output(__global element* to, floatv value, int d) {
  if (d + V <= DV)
    GSTORE(value, to + d);
  else if (d < DV)
    store_some(value, to + d, DV - d);
}
void put_part(__global float* to, floatv value, int d) {
  float lane[V];
  VSTORE(value, lane);
  for (int i = 0; i < V; ++i)
    if (d + i < DV) to[d + i] = lane[i];
}

// Rows of o, or of the parts, from split_row0 on, the first row of this share.
INLINED void put_rows(__global element* o, __global float* parts, floatv (*sum)[TM][TV],
                      __local const float* total, __local const int* sees, const Place at,
                      long split_row0, int splits, int group, int q_len) {
  TILES(t, O_PER_ITEM) {
    const int tile = t * W + get_local_id(0);
    if (tile >= O_TILES) break;
    const int row = tile / O_TILES_D * TM;
    const int d0 = tile % O_TILES_D * (TV * V);
    TILES(i, TM) {
      const int r = at.row0 + row + i;
      if (r >= at.rows) break;
      const float factor = sees[row + i] == 0 ? 0.0f : 1.0f / total[row + i];
      TILES(j, TV) {
        if (splits > 1)
          put_part(parts + (split_row0 + r) * DV, sum[t][i][j], d0 + j * V);
        else
          put_output(o + row_of(r, group, q_len, at.head0) * DV, sum[t][i][j] * factor, d0 + j * V);
      }
    }
  }
}

// One group per (batch, kv head, split of the keys, block of rows). With one split o is written.
// With more, `parts` takes the unnormalised rows [batch·kv_heads, splits, rows, DV], and `state` what
// attention_merge.cl says; it follows.
__kernel __attribute__((reqd_work_group_size(W, 1, 1))) void attention(
    __global const element* restrict q, __global const element* restrict k,
    __global const element* restrict v, __global element* restrict o, __global float* parts,
    __global float* state, int group, int q_len, int kv_len, int row_blocks, int splits, int keys_per_split,
    int causal, float scale, OPTIONS) {
  __local float qt[D * LDQ] __attribute__((aligned(64)));
  __local float kv[BK * LDK] __attribute__((aligned(64)));
  __local float st[BK * LDQ] __attribute__((aligned(64)));
  __local float partial[SLICES * BQ] __attribute__((aligned(64)));
  __local float highest[BQ] __attribute__((aligned(64)));
  __local float total[BQ] __attribute__((aligned(64)));
  __local float shrink[BQ] __attribute__((aligned(64)));
  __local int sees[BQ];   // where the keys that a row sees end
  __local int from[BQ];   // and where they begin

  const int lid = get_local_id(0);
  // The last blocks see most keys when causal: they start first.
  const int block = row_blocks - 1 - (uint)get_group_id(0) % row_blocks;
  const int split = (uint)get_group_id(0) / row_blocks % splits;
  const int head = (uint)get_group_id(0) / row_blocks / splits;  // batch and kv head
  const Place at = place_of(head, block * BQ, BQ, split, keys_per_split, group, q_len, HELD(head),
                            causal, window);
  k += (long)head * kv_len * D;
  v += (long)head * kv_len * DV;
  for (int i = lid; i < BQ; i += W) {
    // Rows past the end repeat the last one; they are not stored.
    sees[i] = visible_keys(min(at.row0 + i, at.rows - 1), group, q_len, at.held, causal);
    from[i] = first_visible(sees[i], window);
    highest[i] = -FLT_MAX;
    total[i] = 0.0f;
  }
  for (int i = lid; i < BQ * D; i += W) {
    const int r = min(at.row0 + i / D, at.rows - 1);
    qt[i % D * LDQ + i / D] = LOAD_ONE(q, row_start(r, group, q_len, at.head0) + i % D);
  }
  floatv sum[O_PER_ITEM][TM][TV];
  TILES(t, O_PER_ITEM) TILES(i, TM) TILES(j, TV) sum[t][i][j] = 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE);

  for (int key0 = at.first_key; key0 < at.end_key; key0 += BK) {
    const int keys = min(at.end_key - key0, BK);
#if K_LOCAL
    for (int i = lid; i < BK * D; i += W)
      kv[i / D * LDK + i % D] = i / D < keys ? LOAD_ONE(k, (long)key0 * D + i) : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    multiply_keys(st, qt, k + (long)key0 * D, kv, keys, scale);
    barrier(CLK_LOCAL_MEM_FENCE);
    apply_options(st, mask, at, key0, keys, sees, from, group, kv_len, cap);
    load_values(kv, v + (long)key0 * DV, keys);
    weigh(st, partial, highest, total, shrink);
    add_values(sum, st, kv, shrink, sees, from, key0, keys);
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const long split_row0 = ((long)head * splits + split) * at.rows;
  put_rows(o, parts, sum, total, sees, at, split_row0, splits, group, q_len);
  if (splits > 1) {
    for (int i = lid; i < BQ && at.row0 + i < at.rows; i += W)
      put_state(state, split_row0 + at.row0 + i,
                sees[i] <= at.first_key || from[i] >= at.end_key, highest[i], total[i]);
  }
}
