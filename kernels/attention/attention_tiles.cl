// o = softmax(scale·q·kᵀ)·v in tiles with online softmax (attention.hpp has the maths; attention_rows.cl says
// what a row is), both products as outer products of registers. Sizes are arguments; head_dim D and
// the tuning come by -D (attention/opencl.cpp says what each means and why). For devices with much
// local memory and copies that run beside the arithmetic; attention.cl is for any device.
//
// A group of W items owns BQ rows and walks over the keys, BK at a time. Item (ty, tx) holds TM rows
// by SN keys of the scores, then TM rows by ON columns of o. Per tile of keys:
//   1. scores: per column, TM floats of q and SN floats of k meet.
//   2. per row the new maximum, by exchange among the TC items of a row; p = 2^(s - maximum), and by
//      how much old sums shrink. p goes to local memory, [key][row].
//   3. o: per key, TM floats of p and ON floats of v meet.
// Steps 1 and 3 take k in chunks of CD columns and v in chunks of CN rows, from a ring of STAGES
// chunks, a multi-stage pipeline of copies. An item transposes the keys that it has copied itself. One
// barrier per chunk is all: before it nobody reads the chunk that is asked for next or transposed last
// but one, and the first one after step 2 shows p.
//
// Dead ends on an H200: keys not transposed, four columns at a time; keys transposed float by float as
// they are copied; 8 rows by 16 columns of o per item at head_dim 128, which needs BQ=256 and chunks
// of 16.
//
// Scores are counted in base 2: q is multiplied by scale·log2(e). The maximum starts at -FLT_MAX, as
// in softmax.cl. An invisible key gets the score -inf, hence p = 0; where rows of a tile see
// different keys and v is not finite, step 3 leaves it out, because 0·NaN is NaN.

#define TR (BQ / TM)  // items along rows
#define TC (W / TR)   // items along keys and columns
// Items 2i and 2i+1 are neighbours along rows, not keys: a vector read from local memory then has
// the same address for items i and i^1, or i and i^2, which halves its time on NVIDIA's devices.
#define PAIR (TC <= 16 ? 2 : 1)
#define SN (BK / TC)
#define ON ((D + TC - 1) / TC)
#define DP (ON * TC)
#define K_CHUNKS ((D + CD - 1) / CD)
#define V_CHUNKS (BK / CN)
#define CHUNKS (K_CHUNKS + V_CHUNKS)
#define KD (K_CHUNKS * CD)
#define CHUNK (BK * CD > CN * DP ? BK * CD : CN * DP)
// Transposed chunks of keys: while one is read, the next is written.
#define KT_SLOTS (K_CHUNKS > 1 ? 2 : 1)
// q and k are transposed in squares of 4 rows or keys (`length` of them in all) by 4 columns.
// Neighbouring items have squares of neighbouring columns, 32 or 64 bytes of memory, and then of
// neighbouring vectors of keys; vectors are exchanged so that 8 of them store to different banks.
#define SIDE (UNROLL % 16 == 0 ? 4 : 2)
#define SQUARES (BK * CD / 16)
#define SQUARE_COLUMN(square, length) \
  ((square) % SIDE * 4 + (square) / (SIDE * (length) / 4) * (4 * SIDE))
#define SQUARE_VECTOR(square, length) ((square) / SIDE % ((length) / 4))
#define D_VECTOR(vector, d, length) \
  ((length) < 32 ? (vector) : (vector) ^ (SIDE == 4 ? ((d) & 12) / 2 : (d) & 4))
// The steps of an unrolled loop over columns see the same places each time.
#define SAME_PLACES (UNROLL % 8 == 0)
// Where a vector of 4 rows of p lies for a key: 8 neighbours store to different banks.
#define P_SWAPS (BQ / 4 >= 8 ? 7 : BQ / 4 - 1)
#define P_VECTOR(vector, key) ((vector) ^ (PAIR * (key) & P_SWAPS))
// The steps of an unrolled loop over keys see the same places each time.
#define SAME_BANKS (UNROLL * PAIR % 8 == 0)

#define COPY CAT(copy_async, VW)

// sum += x·yᵀ, TM rows by N columns, rows there and back: at either end y[j] is still at hand. Hopper
// reads two banks of registers once a clock each, so a multiply-add of three new operands takes two.
#define OUTER(sum, N, x, y)            \
  EACH(i, TM) EACH(step, N)            \
      (sum)[i][i % 2 ? N - 1 - step : step] += (x)[i] * (y)[i % 2 ? N - 1 - step : step];

// Whether the next step's operands are read while the last step of a chunk multiplies: on code path 1
// always, since asking costs more. They are what comes after the chunk, and not used.
#define READS_ON(more) (CODE_PATH == 1 || (more))

// Row and column of vector n + lid of a block of rows of `columns` floats: sums of a constant and
// what depends on lid where the shape allows.
#define EVEN(columns) (W % ((columns) / VW) == 0)
#define ROW_OF(n, columns) \
  (EVEN(columns) ? lid / ((columns) / VW) + n / ((columns) / VW) : (n + lid) / ((columns) / VW))
#define COLUMN_OF(n, columns) ((EVEN(columns) ? lid : n + lid) % ((columns) / VW) * VW)
// Whether the last round of items is a part of one, and this item is not in it.
#define IS_SPARE(n, floats) ((floats) / VW % W != 0 && n + lid >= (floats) / VW)

// Asks for a chunk of a tile of `keys` keys; its rows of k and v begin here.
void copy_chunk(__local float* to, __global const float* k, __global const float* v, int chunk,
                uint keys) {
  const uint lid = get_local_id(0);
  if (chunk < K_CHUNKS) {
    const uint left = D - chunk * CD;
    k += chunk * CD;
#pragma unroll
    for (uint n = 0; n < SQUARES; n += W) {
      if (SQUARES % W != 0 && n + lid >= SQUARES) continue;
      const uint d = SQUARE_COLUMN(n + lid, BK);
      const uint vector = SQUARE_VECTOR(n + lid, BK);
      const uint first = vector / TC * (4 * TC) + vector % TC;
#pragma unroll
      for (uint i = 0; i < 16; i += VW) {
        const uint key = first + i / 4 * TC;
        COPY(to + (i / 4 * SQUARES + n + lid) * 4 + i % 4, k + key * D + d + i % 4,
             key < keys && (D % CD == 0 || d + i % 4 < left) ? VW : 0);
      }
    }
  } else {
    const uint first = (chunk - K_CHUNKS) * CN;
    v += first * D;
#pragma unroll
    for (uint n = 0; n < CN * D / VW; n += W) {
      if (IS_SPARE(n, CN * D)) continue;
      const uint key = ROW_OF(n, D);
      const uint d = COLUMN_OF(n, D);
      COPY(to + key * DP + d, v + key * D + d, first + key < keys ? VW : 0);
    }
  }
}

// Transposes the chunk of keys that this item has copied: to[column][key].
void transpose_keys(__local float* to, __local const float* from) {
  const uint lid = get_local_id(0);
#pragma unroll
  for (uint n = 0; n < SQUARES; n += W) {
    if (SQUARES % W != 0 && n + lid >= SQUARES) continue;
    float x[4][4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) GET4(x[i], __local, from + (i * SQUARES + n + lid) * 4);
    const uint d = SQUARE_COLUMN(n + lid, BK);
#pragma unroll
    for (uint c = 0; c < 4; ++c)
      *(__local float4*)(to + (d + c) * BK + 4 * D_VECTOR(SQUARE_VECTOR(n + lid, BK), d, BK)) =
          (float4)(x[0][c], x[1][c], x[2][c], x[3][c]);
  }
}

// Whether inf or NaN is among what this item has copied of a chunk of v.
bool is_wild(__local const float* from) {
  const uint lid = get_local_id(0);
  float zeros = 0.0f;
#pragma unroll
  for (uint n = 0; n < CN * D / VW; n += W) {
    if (IS_SPARE(n, CN * D)) continue;
    __local const float* at = from + ROW_OF(n, D) * DP + COLUMN_OF(n, D);
    EACH(c, VW) zeros += at[c] * 0.0f;
  }
  return !(zeros == 0.0f);
}

// Row i of an item within its block.
#define ROW(ty, i) (4 * (ty) + (i) / 4 * 4 * TR + (i) % 4)

// Transposes the queries of this block, times `scale2`: to[column][row]. The same squares as of keys.
INLINED void load_queries(__local float* to, __global const float* q, const Place at, int group, int q_len,
                  float scale2) {
#pragma unroll 4
  for (uint square = get_local_id(0); square < BQ * KD / 16; square += W) {
    const uint vector = SQUARE_VECTOR(square, BQ);
    const uint d = SQUARE_COLUMN(square, BQ);
    float x[4][4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
      const int row = at.row0 + 4 * vector + i;
      const long from = row_start(row < at.rows ? row : at.rows - 1, group, q_len, at.head0);
#if VW == 4
      const float4 x4 = d < D ? *(__global const float4*)(q + from + d) : (float4)(0.0f);
      x[i][0] = x4.x * scale2;
      x[i][1] = x4.y * scale2;
      x[i][2] = x4.z * scale2;
      x[i][3] = x4.w * scale2;
#else
#pragma unroll
      for (uint c = 0; c < 4; ++c) x[i][c] = d + c < D ? q[from + d + c] * scale2 : 0.0f;
#endif
    }
#pragma unroll
    for (uint c = 0; c < 4; ++c)
      *(__local float4*)(to + (d + c) * BQ + 4 * D_VECTOR(vector, d, BQ)) =
          (float4)(x[0][c], x[1][c], x[2][c], x[3][c]);
  }
}

// Step 1 of a chunk of columns, which begin at x_at and y_at: s += q·kᵀ.
INLINED void multiply_keys(float (*s)[SN], __local const float* x_at, __local const float* y_at, int tx,
                      int ty) {
#define LOAD_Q(to, d, like) \
  GET_FOURS(to, TM, x_at + (d) * BQ + 4 * D_VECTOR(ty + i / 4 * TR, like, BQ))
#define LOAD_K(to, d, like) \
  GET_FOURS(to, SN, y_at + (d) * BK + 4 * D_VECTOR(tx + i / 4 * TC, like, BK))
  float x[2][TM], y[2][SN];
  LOAD_Q(x[0], 0, 0);
  LOAD_K(y[0], 0, 0);
#pragma unroll 1
  for (int d = 0; d < CD; d += UNROLL) {
    EACH(u, UNROLL) {
      if (u + 1 < UNROLL || READS_ON(d + UNROLL < CD)) {
        LOAD_Q(x[(u + 1) % 2], u + 1, SAME_PLACES ? u + 1 : d + u + 1);
        LOAD_K(y[(u + 1) % 2], u + 1, SAME_PLACES ? u + 1 : d + u + 1);
      }
      OUTER(s, SN, x[u % 2], y[u % 2]);
    }
    x_at += UNROLL * BQ;
    y_at += UNROLL * BK;
  }
}

// What the options make of the scores of `keys` keys from key0 on, and -inf for those that a row does
// not see.
INLINED void apply_options(float (*s)[SN], __global const float* mask, const Place at,
                      __local const int* sees, int key0, int keys, int tx, int ty, int group,
                      int kv_len, int window, float cap) {
#if SOFTCAP || MASK
  EACH(i, TM) {
    __global const float* mask_row =
        mask + (long)(min(at.row0 + ROW(ty, i), at.rows - 1) / group) * kv_len;
    EACH(j, SN) {
#if SOFTCAP
      s[i][j] = cap * tanh(s[i][j] / cap);
#endif
#if MASK
      if (tx + j * TC < keys) s[i][j] += M_LOG2E_F * mask_row[key0 + tx + j * TC];
#endif
    }
  }
#endif
  if (keys < BK || at.seen_by_all < key0 + BK || at.hidden > key0) {
    EACH(i, TM) {
      const int seen_to = sees[ROW(ty, i)];
      const int begin = first_visible(seen_to, window) - key0;
      const int end = min(seen_to - key0, keys);
      EACH(j, SN) if (tx + j * TC < begin || tx + j * TC >= end) s[i][j] = -INFINITY;
    }
  }
}

// Step 2: scores become weights, also in pt; what was added before shrinks.
INLINED void weigh(float (*s)[SN], float (*sum)[ON], float* high, float* total, __local float* pt,
              __local float* scratch, int tx, int ty) {
  EACH(i, TM) {
    float highest = high[i];
    EACH(j, SN) highest = fmax(highest, s[i][j]);
    highest = near_max(highest, scratch, TC, PAIR);
    const float shrink = fast_exp2(high[i] - highest);
    high[i] = highest;
    total[i] *= shrink;
    EACH(j, ON) sum[i][j] *= shrink;
    EACH(j, SN) {
      s[i][j] = fast_exp2(s[i][j] - highest);
      total[i] += s[i][j];
    }
  }
  EACH(j, SN)
#pragma unroll
    for (int i = 0; i < TM; i += 4)
      *(__local float4*)(pt + (tx + j * TC) * BQ + 4 * P_VECTOR(ty + i / 4 * TR, tx)) =
          (float4)(s[i][j], s[i + 1][j], s[i + 2][j], s[i + 3][j]);
}

// Columns of an item: vectors of 4, TC vectors apart, then one of 2, then a single one.
#define LOAD_V(to, key)                                                                     \
  _Pragma("unroll") for (int j = 0; j + 3 < ON; j += 4)                                     \
      GET4((to) + j, __local, v_at + (key) * DP + 4 * tx + j * TC);                         \
  if (ON % 4 >= 2) {                                                                        \
    const float2 x2 = *(__local const float2*)(v_at + (key) * DP + ON / 4 * 4 * TC + 2 * tx); \
    (to)[ON / 4 * 4] = x2.x;                                                                \
    (to)[ON / 4 * 4 + ON % 4 / 2] = x2.y;                                                   \
  }                                                                                         \
  if (ON % 2 == 1) (to)[ON - 1] = v_at[(key) * DP + (ON - 1) * TC + tx];
// `like` is any number that is the same as key modulo 8.
#define LOAD_P(to, key, like) \
  GET_FOURS(to, TM, p_at + (key) * BQ + 4 * P_VECTOR(ty + i / 4 * TR, like))

// Step 3 of a chunk of values from key `first` of the tile on; `left` of them exist: sum += p·v.
INLINED void add_values(float (*sum)[ON], __local const float* p_at, __local const float* v_at, int first,
                   int left, int tx, int ty) {
  float x[2][TM], y[2][ON];
  LOAD_P(x[0], 0, first);
  LOAD_V(y[0], 0);
#pragma unroll 1
  for (int key = 0; key < CN && key < left; key += UNROLL) {
    EACH(u, UNROLL) {
      if (u + 1 < UNROLL || READS_ON(key + UNROLL < CN)) {
        LOAD_P(x[(u + 1) % 2], u + 1, SAME_BANKS ? u + 1 : first + key + u + 1);
        LOAD_V(y[(u + 1) % 2], u + 1);
      }
      OUTER(sum, ON, x[u % 2], y[u % 2]);
    }
    p_at += UNROLL * BQ;
    v_at += UNROLL * DP;
  }
}

// The same where a value that some row does not see is not finite; key0: the chunk's first key.
INLINED void add_wild_values(float (*sum)[ON], __local const float* p_at, __local const float* v_at,
                        __local const int* sees, int key0, int first, int left, int tx, int ty,
                        int window) {
  int begin[TM], end[TM];
  EACH(i, TM) {
    const int seen_to = sees[ROW(ty, i)];
    begin[i] = first_visible(seen_to, window) - key0;
    end[i] = min(seen_to - key0, left);
  }
#pragma unroll 1
  for (int key = 0; key < CN && key < left; ++key) {
    float x[TM], y[ON];
    LOAD_P(x, key, first + key);
    LOAD_V(y, key);
    EACH(i, TM)
      if (key >= begin[i] && key < end[i])
        EACH(j, ON) sum[i][j] += x[i] * y[j];
  }
}

// This item's columns of a row of o, or of a part.
INLINED void put_row(__global float* to, const float* sum, float factor, int tx, bool is_part) {
#pragma unroll
  for (int j = 0; j + 3 < ON; j += 4) {
    const int d = 4 * tx + j * TC;
#if VW == 4
    // Parts have neighbours exchanged: a vector of sums in order would pin each of them to the
    // bank of registers of its y (see OUTER).
    if (d < D && is_part)
      *(__global float4*)(to + d) = (float4)(sum[j + 1], sum[j], sum[j + 3], sum[j + 2]);
    else if (d < D)
      *(__global float4*)(to + d) = (float4)(sum[j], sum[j + 1], sum[j + 2], sum[j + 3]) * factor;
#else
    EACH(c, 4) if (d + c < D) to[d + c] = sum[j + c] * factor;
#endif
  }
#pragma unroll
  for (int j = ON / 4 * 4; j < ON / 2 * 2; ++j) {
    const int d = ON / 4 * 4 * TC + 2 * tx + j % 2;
    if (d < D) to[d] = sum[j] * factor;
  }
  if (ON % 2 == 1 && (ON - 1) * TC + tx < D) to[(ON - 1) * TC + tx] = sum[ON - 1] * factor;
}

// This item's rows of o, or of the parts of this share, which begin at row split_row0.
INLINED void put_rows(__global float* o, __global float* state, float (*sum)[ON], const float* high,
                      const float* total, const Place at, long split_row0, bool is_part, int tx,
                      int ty, int group, int q_len, int causal, int window) {
  EACH(i, TM) {
    const int r = at.row0 + ROW(ty, i);
    if (r >= at.rows) continue;
    const int seen_to = visible_keys(r, group, q_len, at.held, causal);
    put_row(o + (is_part ? (split_row0 + r) * D : row_start(r, group, q_len, at.head0)), sum[i],
            is_part ? 1.0f : seen_to == 0 ? 0.0f : 1.0f / total[i], tx, is_part);
    if (is_part && tx == 0)
      put_state(state, split_row0 + r,
                seen_to <= at.first_key || first_visible(seen_to, window) >= at.end_key, high[i],
                total[i]);
  }
}

// One group per (batch, kv head, split of the keys, block of rows). With one split o is the result.
// With more, o takes the unnormalised rows [batch·kv_heads, splits, rows, D] and `state` what
// attention_merge.cl says; it follows.
__kernel __attribute__((reqd_work_group_size(W, 1, 1))) void tiles(
    __global const float* restrict q, __global const float* restrict k,
    __global const float* restrict v, __global float* restrict o, __global float* restrict state,
    int group, int q_len, int kv_len, int heads, int row_blocks, int splits, int keys_per_split,
    int fold, int causal, float scale2, OPTIONS) {
  // In one piece, so that what is read after a chunk (READS_ON) exists.
  __local float local_floats[KD * BQ + KT_SLOTS * CD * BK + STAGES * CHUNK + BK * BQ + BQ + 1]
      __attribute__((aligned(16)));
  __local float* qt = local_floats;  // [column][row]
  __local float* kt = qt + KD * BQ;  // [column][key]
  __local float* ring = kt + KT_SLOTS * CD * BK;
  __local float* pt = ring + STAGES * CHUNK;
  __local int* sees = (__local int*)(pt + BK * BQ);
  __local int* wild = sees + BQ;  // whether inf or NaN has come where rows see different keys
#if CODE_PATH == 0
  __local float scratch[W];
#else
  __local float* scratch = 0;
#endif

  const uint lid = get_local_id(0);
  const int tx = lid / PAIR % TC;
  const int ty = lid / (PAIR * TC) * PAIR + lid % PAIR;
  // The last blocks see most keys when causal: those of all heads start first. Otherwise the blocks
  // of a head run together, for the cache. Where all groups run at once, `fold` at a time are handed
  // to as many units: those with the longest groups get the shortest ones of the next `fold`.
  int unit = (uint)get_group_id(0) / splits;
  if (causal && unit / fold % 2 == 1)
    unit = unit / fold * fold + min((unit / fold + 1) * fold, heads * row_blocks) - 1 - unit;
  const int split = (uint)get_group_id(0) % splits;
  const int head = causal ? unit % heads : unit / row_blocks;  // batch and kv head
  const int block = row_blocks - 1 - (causal ? unit / heads : unit % row_blocks);
  const Place at = place_of(head, block * BQ, BQ, split, keys_per_split, group, q_len, HELD(head),
                            causal, window);

  __global const float* next_k = k + ((long)head * kv_len + at.first_key) * D;
  __global const float* next_v = v + ((long)head * kv_len + at.first_key) * D;
  int next_keys = at.end_key - at.first_key;  // of the tile that is asked for, and all after it
  int next_chunk = 0;
  int next_slot = 0;
#define ASK()                                                                        \
  {                                                                                  \
    if (next_keys > 0)                                                               \
      copy_chunk(ring + next_slot * CHUNK, next_k, next_v, next_chunk,               \
                 next_keys < BK ? next_keys : BK);                              \
    copies_commit();                                                                 \
    next_slot = next_slot + 1 == STAGES ? 0 : next_slot + 1;                         \
    next_chunk = next_chunk + 1 == CHUNKS ? 0 : next_chunk + 1;                      \
    if (next_chunk == 0) {                                                           \
      next_k += BK * D;                                                              \
      next_v += BK * D;                                                              \
      next_keys -= BK;                                                               \
    }                                                                                \
  }
  // The next chunk, once all its copies have come; `between` happens first.
#define NEXT_CHUNK(between)                            \
  copies_wait(STAGES - 2);                             \
  __local const float* chunk_at = ring + slot * CHUNK; \
  slot = slot + 1 == STAGES ? 0 : slot + 1;            \
  between;                                             \
  barrier(CLK_LOCAL_MEM_FENCE);                        \
  ASK();

  for (int stage = 0; stage < STAGES - 1; ++stage) ASK();

  if (lid == 0) *wild = 0;
  // Rows past the end repeat the last one; they are not stored.
  for (uint i = lid; i < BQ; i += W)
    sees[i] = visible_keys(min(at.row0 + (int)i, at.rows - 1), group, q_len, at.held, causal);
  // The first chunk's barrier shows them.
  load_queries(qt, q, at, group, q_len, scale2);

  float sum[TM][ON];
  float high[TM];
  float total[TM];  // of this item's keys
  EACH(i, TM) {
    EACH(j, ON) sum[i][j] = 0.0f;
    high[i] = -FLT_MAX;
    total[i] = 0.0f;
  }

  // Items without any row multiply nothing.
#define HAS_ROWS (at.row0 + 4 * ty < at.rows)
  int slot = 0;
  for (int key0 = at.first_key; key0 < at.end_key; key0 += BK) {
    const int keys = min(at.end_key - key0, BK);
    float s[TM][SN];
    EACH(i, TM) EACH(j, SN) s[i][j] = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < K_CHUNKS; ++chunk) {
      __local float* y_at = kt + chunk % KT_SLOTS * (CD * BK);
      NEXT_CHUNK(transpose_keys(y_at, chunk_at));
      if (HAS_ROWS) multiply_keys(s, qt + chunk * (CD * BQ), y_at, tx, ty);
    }
    apply_options(s, mask, at, sees, key0, keys, tx, ty, group, kv_len, window, cap);
    weigh(s, sum, high, total, pt, scratch, tx, ty);

    const bool differs = causal && (at.seen_by_all < key0 + keys || at.hidden > key0);
#pragma unroll 1
    for (int chunk = 0; chunk < V_CHUNKS; ++chunk) {
      const int first = chunk * CN;
      NEXT_CHUNK(if (differs && is_wild(chunk_at)) *wild = 1);
      if (!HAS_ROWS) continue;
      if (differs && *wild)
        add_wild_values(sum, pt + first * BQ, chunk_at, sees, key0 + first, first, keys - first, tx,
                        ty, window);
      else
        add_values(sum, pt + first * BQ, chunk_at, first, keys - first, tx, ty);
    }
  }
  copies_wait(0);

  EACH(i, TM) total[i] = near_add(total[i], scratch, TC, PAIR);
  put_rows(o, state, sum, high, total, at, ((long)head * splits + split) * at.rows, splits > 1, tx,
           ty, group, q_len, causal, window);
}
