// Put before every kernel of this room but the ladder's. The query heads of a kv head are taken
// together: row r of a kv head is query r / group of the head's r % group-th query head, so that
// what a row sees never shrinks with r. Lengths stay below 2^30 (attention/opencl.cpp refuses
// others); division of 64-bit numbers takes a GPU a hundred instructions.

// What the options of attention.hpp need: a mask [q_len,kv_len] with -DMASK=1, how many keys the
// cache of each row of the batch holds with -DLENGTHS=1, a window (0: none), a cap with -DSOFTCAP=1.
#define OPTIONS                                                                          \
  __global const float *restrict mask, __global const int *restrict lengths, int kv_heads, \
      int window, float cap
// Keys in the cache of a batch entry and kv head, of kv_len that there is room for.
#if LENGTHS
#define HELD(head) lengths[(head) / kv_heads]
#else
#define HELD(head) kv_len
#endif

// Where the keys end that row r sees; without a window they are the first ones.
int visible_keys(int r, int group, int q_len, int kv_len, int causal) {
  const int end = r / group + 1 + kv_len - q_len;
  return !causal ? kv_len : end < 0 ? 0 : end < kv_len ? end : kv_len;
}

// Where they begin: with a window the last ones alone are seen.
int first_visible(int end, int window) { return window == 0 || end < window ? 0 : end - window; }

// Row r of this batch entry and kv head among those of q and o, and where it begins. head0 is the kv
// head's first query head.
long row_of(int r, int group, int q_len, int head0) {
  return (long)(head0 + r % group) * q_len + r / group;
}
long row_start(int r, int group, int q_len, int head0) {
  return row_of(r, group, q_len, head0) * D;
}

// What a group computes: from row0 on, BQ rows of one kv head, against some of its keys.
typedef struct {
  int head, head0;           // batch and kv head; batch and first query head
  int rows, row0;            // rows of the kv head, and the first of this group
  int held;                  // keys of the kv head
  int seen_by_all, seen;     // where the keys end that all rows see, and that any row sees
  int hidden;                // where the keys end that the window hides from some row
  int first_key, end_key;    // the keys of this group's share
} Place;
// Functions that take a Place or an item's arrays are inlined: a call would put them in memory.
INLINED Place place_of(int head, int row0, int block_rows, int split, int keys_per_split, int group, int q_len,
               int held, int causal, int window) {
  Place p;
  p.head = head;
  p.head0 = head * group;
  p.rows = q_len * group;
  p.row0 = row0;
  p.held = held;
  p.seen = visible_keys(min(row0 + block_rows, p.rows) - 1, group, q_len, held, causal);
  p.seen_by_all = visible_keys(row0, group, q_len, held, causal);
  p.hidden = first_visible(p.seen, window);
  p.first_key = first_visible(p.seen_by_all, window) + split * keys_per_split;
  p.end_key = min(p.first_key + keys_per_split, p.seen);
  return p;
}

// A row's share of the keys, for attention_merge.cl: the maximum, -inf if it sees none of them, and the
// sum of the weights.
void put_state(__global float* state, long row, bool sees_none, float high, float total) {
  state[row * 2] = sees_none ? -INFINITY : high;
  state[row * 2 + 1] = total;
}

// VW neighbours from column `at` on of a row of o from its shares of the keys. Their sums `parts` and
// states have rows `rows` apart: with M the largest maximum and w = base^(maximum - M), Σ w·part / Σ w·sum; zeros
// if the row sees no key. The base is that of the scores. AT_ONCE shares are asked for together.
#if VW == 4
typedef float4 floatw;
#elif VW == 2
typedef float2 floatw;
#else
typedef float floatw;
#endif
#if BASE_e
#define POWER(x) exp(x)
#else
#define POWER(x) fast_exp2(x)
#endif
#if FUSED
// Other groups of this launch wrote them; a read takes half a microsecond, and nothing else runs.
#define AT_ONCE 12
#define LOAD_STATE(p) load_shared1(p)
#if VW == 4
#define LOAD_PART(p) load_shared((__global const float4*)(p))
#elif VW == 2
#define LOAD_PART(p) ((float2)(load_shared1(p), load_shared1((p) + 1)))
#else
#define LOAD_PART(p) load_shared1(p)
#endif
#else
#define AT_ONCE 4
#define LOAD_STATE(p) (*(p))
#define LOAD_PART(p) (*(__global const floatw*)(p))
#endif
INLINED floatw merged(__global const float* parts, __global const float* state, int rows, int columns, int at,
              int splits) {
  float high = -INFINITY;
  float weights = 0.0f;
  floatw value = 0.0f;
  for (int s0 = 0; s0 < splits; s0 += AT_ONCE) {
    float highs[AT_ONCE], totals[AT_ONCE];
    floatw values[AT_ONCE];
    EACH(i, AT_ONCE) {
      const long row = (long)min(s0 + i, splits - 1) * rows;
      highs[i] = LOAD_STATE(state + 2 * row);
      totals[i] = LOAD_STATE(state + 2 * row + 1);
      values[i] = LOAD_PART(parts + row * columns + at);
    }
    const float old = high;
    EACH(i, AT_ONCE) high = fmax(high, highs[i]);
    const float base = high == -INFINITY ? 0.0f : high;
    const float shrink = POWER(old - base);
    weights *= shrink;
    value *= shrink;
    EACH(i, AT_ONCE) {
      const float factor = POWER(highs[i] - base);
      if (s0 + i < splits) {
        weights += factor * totals[i];
        value += factor * values[i];
      }
    }
  }
  return high == -INFINITY ? (floatw)(0.0f) : value / weights;
}
