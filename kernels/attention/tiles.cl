// o = softmax(scale·q·kᵀ)·v in tiles with online softmax (attention.hpp has the maths; rows.cl says
// what a row is), both products as outer products of registers. Sizes are arguments; head_dim D and
// the tuning come by -D (attention/opencl.cpp says what each means and why). For devices with much
// local memory and copies that run beside the arithmetic; attention.cl is for any device.
//
// A group of W items owns BQ rows and walks over the keys, BK at a time. Item (ty, tx) holds TM rows
// by SN keys of the scores, then TM rows by ON columns of o. Per tile of keys:
//   1. scores: per d, TM floats of q and SN floats of k meet. q and k lie transposed, [d][row] and
//      [d][key]: q once per group, k as it is copied, float by float.
//   2. per row the new maximum, by exchange among the TC items of a row; p = 2^(s - maximum), and by
//      how much old sums shrink. p goes to local memory, [key][row].
//   3. o: per key, TM floats of p and ON floats of v meet.
// Steps 1 and 3 take k in chunks of CD columns and v in chunks of CN rows, from a ring of STAGES
// chunks that copies fill ahead. One barrier per chunk is all: before it nobody reads the chunk
// that is asked for next, and the first one after step 2 shows p.
//
// Scores are counted in base 2: q is multiplied by scale·log2(e). The maximum starts at -FLT_MAX, as
// in softmax.cl. An invisible key gets the score -inf, hence p = 0, and is left out of step 3 for
// the rows that may not see it, because 0·NaN is NaN.

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
// Rows 4 apart in banks: a transposing copy by 8 d × 4 keys meets each of 32 banks once.
#define LDQ (BQ + 4)
#define LDK (BK + 4)
#define K_FLOATS (CD * LDK)
#define V_FLOATS (CN * DP)
#define CHUNK (K_FLOATS > V_FLOATS ? K_FLOATS : V_FLOATS)
// Where a vector of 4 rows of p lies for a key of the quad-th four: 8 neighbours store to different
// banks.
#define P_SWAPS (BQ / 4 >= 8 ? 7 : BQ / 4 - 1)
#define P_VECTOR(vector, quad) ((vector) ^ (PAIR * (quad) & P_SWAPS))

#if VW == 4
#define COPY copy_async4
#elif VW == 2
#define COPY copy_async2
#else
#define COPY copy_async1
#endif

// 4 floats of local memory, aligned, into the private array `to`.
#define GET4(to, from)                              \
  {                                                 \
    const float4 x4 = *(__local const float4*)(from); \
    (to)[0] = x4.x;                                 \
    (to)[1] = x4.y;                                 \
    (to)[2] = x4.z;                                 \
    (to)[3] = x4.w;                                 \
  }

// A transposing copy: 32 neighbours take 8 columns × 4 rows, whole sectors of 32 bytes. Item lid's
// n-th part, as sums of a constant and what depends on lid where the shape allows.
#define OCTETS(columns) (((columns) + 7) / 8)
#define EVEN(columns) (W % (32 * OCTETS(columns)) == 0)
#define COLUMN_OF(n, columns) \
  ((EVEN(columns) ? lid / 32 : (n + lid) / 32) % OCTETS(columns) * 8 + (EVEN(columns) ? lid : n + lid) % 8)
#define ROW_OF(n, columns)                                                              \
  (EVEN(columns) ? lid / 32 / OCTETS(columns) * 4 + lid / 8 % 4 + n / 32 / OCTETS(columns) * 4 \
                 : (n + lid) / 32 / OCTETS(columns) * 4 + (n + lid) / 8 % 4)

// Asks for a chunk of a tile that has `keys` keys and whose rows of k and v begin here.
void copy_chunk(__local float* to, __global const float* k, __global const float* v, int chunk,
                int keys) {
  const uint lid = get_local_id(0);
  if (chunk < K_CHUNKS) {
    const uint left = D - chunk * CD;
    k += chunk * CD;
#pragma unroll
    for (uint n = 0; n < BK * 8 * OCTETS(CD); n += W) {
      const uint d = COLUMN_OF(n, CD);
      const uint key = ROW_OF(n, CD);
      if (CD % 8 != 0 && d >= CD) continue;
      if (BK * 8 * OCTETS(CD) % W != 0 && key >= BK) continue;
      copy_async1(to + d * LDK + key, k + key * D + d, key < keys && (D % CD == 0 || d < left));
    }
  } else {
    const int first = (chunk - K_CHUNKS) * CN;
    v += first * D;
#pragma unroll
    for (uint n = 0; n < CN * (D / VW); n += W) {
      if (CN * (D / VW) % W != 0 && n + lid >= CN * (D / VW)) continue;
      const uint key =
          W % (D / VW) == 0 ? lid / (D / VW) + n / (D / VW) : (n + lid) / (D / VW);
      const uint d = (W % (D / VW) == 0 ? lid : n + lid) % (D / VW) * VW;
      COPY(to + key * DP + d, v + key * D + d, first + (int)key < keys ? VW : 0);
    }
  }
}

// One group per (batch, kv head, split of the keys, block of rows). With one split o is the result.
// With more, o takes the unnormalised rows [batch·kv_heads, splits, rows, D] and `state` what
// merge.cl says; it follows.
__kernel __attribute__((reqd_work_group_size(W, 1, 1))) void tiles(
    __global const float* restrict q, __global const float* restrict k,
    __global const float* restrict v, __global float* restrict o, __global float* restrict state,
    int group, int q_len, int kv_len, int heads, int row_blocks, int splits, int keys_per_split,
    int causal, float scale2) {
  __local float qt[K_CHUNKS * CD * LDQ] __attribute__((aligned(16)));
  __local float ring[STAGES * CHUNK] __attribute__((aligned(16)));
  __local float pt[BK * BQ] __attribute__((aligned(16)));
  __local int sees[BQ];
#if ROAD == 0
  __local float scratch[W];
#else
  __local float* scratch = 0;
#endif

  const uint lid = get_local_id(0);
  const int tx = lid / PAIR % TC;
  const int ty = lid / (PAIR * TC) * PAIR + lid % PAIR;
  const int rows = q_len * group;
  // The last blocks see most keys when causal: those of all heads start first. Otherwise the blocks
  // of a head run together, for the cache.
  const int unit = (uint)get_group_id(0) / splits;
  const int split = (uint)get_group_id(0) % splits;
  const int head = causal ? unit % heads : unit / row_blocks;  // batch and kv head
  const int block = row_blocks - 1 - (causal ? unit / heads : unit % row_blocks);
  const int head0 = head * group;  // batch and first query head
  const int row0 = block * BQ;
  const int first_key = split * keys_per_split;
  const int last_row = row0 + BQ < rows ? row0 + BQ - 1 : rows - 1;
  const int seen = visible_keys(last_row, group, q_len, kv_len, causal);
  const int end_key = first_key + keys_per_split < seen ? first_key + keys_per_split : seen;
  const int seen_by_all = visible_keys(row0, group, q_len, kv_len, causal);

  __global const float* next_k = k + ((long)head * kv_len + first_key) * D;
  __global const float* next_v = v + ((long)head * kv_len + first_key) * D;
  int next_keys = end_key - first_key;  // of the tile that is asked for, and all after it
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
  // The next chunk, once all its copies have come.
#define TURN()                                                      \
  copies_wait(STAGES - 2);                                          \
  barrier(CLK_LOCAL_MEM_FENCE);                                     \
  ASK();                                                            \
  __local const float* chunk_at = ring + slot * CHUNK;              \
  slot = slot + 1 == STAGES ? 0 : slot + 1;

  for (int stage = 0; stage < STAGES - 1; ++stage) ASK();

  for (uint i = lid; i < BQ; i += W) {
    // Rows past the end repeat the last one; they are not stored.
    const int r = row0 + i < rows ? row0 + i : rows - 1;
    sees[i] = visible_keys(r, group, q_len, kv_len, causal);
  }
#pragma unroll 4
  for (uint n = 0; n < BQ * 8 * OCTETS(K_CHUNKS * CD); n += W) {
    const int d = COLUMN_OF(n, K_CHUNKS * CD);
    const int row = ROW_OF(n, K_CHUNKS * CD);
    const int r = row0 + row < rows ? row0 + row : rows - 1;
    if (d < K_CHUNKS * CD && row < BQ)
      qt[d * LDQ + row] = d < D ? q[row_start(r, group, q_len, head0) + d] * scale2 : 0.0f;
  }

  float sum[TM][ON];
  float high[TM];
  float total[TM];  // of this item's keys
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int j = 0; j < ON; ++j) sum[i][j] = 0.0f;
    high[i] = -FLT_MAX;
    total[i] = 0.0f;
  }

  int slot = 0;
  for (int key0 = first_key; key0 < end_key; key0 += BK) {
    const int keys = end_key - key0 < BK ? end_key - key0 : BK;

    // 1. Scores.
    float s[TM][SN];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < SN; ++j) s[i][j] = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < K_CHUNKS; ++chunk) {
      TURN();
      __local const float* x_at = qt + chunk * (CD * LDQ) + 4 * ty;
      __local const float* y_at = chunk_at + 4 * tx;
#pragma unroll UNROLL
      for (int d = 0; d < CD; ++d) {
        float x[TM], y[SN];
#pragma unroll
        for (int i = 0; i < TM; i += 4) GET4(x + i, x_at + d * LDQ + i * TR);
#pragma unroll
        for (int j = 0; j < SN; j += 4) GET4(y + j, y_at + d * LDK + j * TC);
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < SN; ++j) s[i][j] += x[i] * y[j];
      }
    }
    if (keys < BK || seen_by_all < key0 + BK) {
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int left = sees[4 * ty + i / 4 * 4 * TR + i % 4] - key0;
        const int end = left < keys ? left : keys;
#pragma unroll
        for (int j = 0; j < SN; ++j)
          if (4 * tx + j / 4 * 4 * TC + j % 4 >= end) s[i][j] = -INFINITY;
      }
    }

    // 2. Weights.
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      float highest = high[i];
#pragma unroll
      for (int j = 0; j < SN; ++j) highest = fmax(highest, s[i][j]);
      highest = near_max(highest, scratch, TC, PAIR);
      const float shrink = exp2_road(high[i] - highest);
      high[i] = highest;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < ON; ++j) sum[i][j] *= shrink;
#pragma unroll
      for (int j = 0; j < SN; ++j) {
        s[i][j] = exp2_road(s[i][j] - highest);
        total[i] += s[i][j];
      }
    }
#pragma unroll
    for (int j = 0; j < SN; ++j) {
      const int quad = tx + j / 4 * TC;
      const int swaps = TC % 8 == 0 ? tx : quad;
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(__local float4*)(pt + (4 * quad + j % 4) * BQ + 4 * P_VECTOR(ty + i / 4 * TR, swaps)) =
            (float4)(s[i][j], s[i + 1][j], s[i + 2][j], s[i + 3][j]);
    }

    // 3. Weighted values.
    const bool differs = causal && seen_by_all < key0 + keys;
#pragma unroll 1
    for (int chunk = 0; chunk < V_CHUNKS; ++chunk) {
      TURN();
      __local const float* x_at = pt + chunk * (CN * BQ);
      // Columns of an item: vectors of 4, TC vectors apart, then one of 2, then a single one.
#define GET_V(y, key)                                                                       \
  _Pragma("unroll") for (int j = 0; j + 3 < ON; j += 4)                                     \
      GET4(y + j, chunk_at + (key) * DP + 4 * tx + j * TC);                                 \
  if (ON % 4 >= 2) {                                                                        \
    const float2 y2 =                                                                       \
        *(__local const float2*)(chunk_at + (key) * DP + ON / 4 * 4 * TC + 2 * tx);         \
    y[ON / 4 * 4] = y2.x;                                                                   \
    y[ON / 4 * 4 + ON % 4 / 2] = y2.y;                                                      \
  }                                                                                         \
  if (ON % 2 == 1) y[ON - 1] = chunk_at[(key) * DP + (ON - 1) * TC + tx];
      if (differs) {
        const int first = chunk * CN;
        int end[TM];
#pragma unroll
        for (int i = 0; i < TM; ++i) {
          const int left = sees[4 * ty + i / 4 * 4 * TR + i % 4] - key0 - first;
          end[i] = left < keys - first ? left : keys - first;
        }
#pragma unroll 1
        for (int key = 0; key < CN; ++key) {
          float x[TM], y[ON];
#pragma unroll
          for (int i = 0; i < TM; i += 4)
            GET4(x + i, x_at + key * BQ + 4 * P_VECTOR(ty + i / 4 * TR, (key + first) / 4));
          GET_V(y, key);
#pragma unroll
          for (int i = 0; i < TM; ++i)
            if (key < end[i])
#pragma unroll
              for (int j = 0; j < ON; ++j) sum[i][j] += x[i] * y[j];
        }
      } else {
#pragma unroll UNROLL
        for (int key = 0; key < CN; ++key) {
          float x[TM], y[ON];
#pragma unroll
          for (int i = 0; i < TM; i += 4)
            GET4(x + i, x_at + key * BQ + 4 * P_VECTOR(ty + i / 4 * TR, CN % 32 == 0 ? key / 4 : (key + chunk * CN) / 4));
          GET_V(y, key);
#pragma unroll
          for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < ON; ++j) sum[i][j] += x[i] * y[j];
        }
      }
    }
  }
  copies_wait(0);

#pragma unroll
  for (int i = 0; i < TM; ++i) total[i] = near_add(total[i], scratch, TC, PAIR);
  const long split_row0 = ((long)head * splits + split) * rows;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int row = 4 * ty + i / 4 * 4 * TR + i % 4;
    const int r = row0 + row;
    if (r >= rows) continue;
    const int sees_to = visible_keys(r, group, q_len, kv_len, causal);
    const float factor = splits > 1 ? 1.0f : sees_to == 0 ? 0.0f : 1.0f / total[i];
    __global float* to =
        o + (splits > 1 ? (split_row0 + r) * D : row_start(r, group, q_len, head0));
#pragma unroll
    for (int j = 0; j + 3 < ON; j += 4) {
      const int d = 4 * tx + j * TC;
#if VW == 4
      if (d < D)
        *(__global float4*)(to + d) =
            (float4)(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]) * factor;
#else
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (d + c < D) to[d + c] = sum[i][j + c] * factor;
#endif
    }
#pragma unroll
    for (int j = ON / 4 * 4; j < ON / 2 * 2; ++j) {
      const int d = ON / 4 * 4 * TC + 2 * tx + j % 2;
      if (d < D) to[d] = sum[i][j] * factor;
    }
    if (ON % 2 == 1 && (ON - 1) * TC + tx < D) to[(ON - 1) * TC + tx] = sum[i][ON - 1] * factor;
    if (splits > 1 && tx == 0) {
      state[(split_row0 + r) * 2] = sees_to <= first_key ? -INFINITY : high[i];
      state[(split_row0 + r) * 2 + 1] = total[i];
    }
  }
}
