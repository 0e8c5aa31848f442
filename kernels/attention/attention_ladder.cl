// Attention, the ladder on a GPU: from one item per query to tiles of queries and keys, one idea a
// rung. For reading and for `bench --ladder`; the fast path (attention.cl) goes on where this ends.
// The ideas: attention.hpp. Operands are dense; query head h reads kv head h / share; SIDE·SIDE items
// a group.
// The maximum starts at -FLT_MAX: scores of -inf then weigh zero, and a query that sees nothing
// else divides 0 by 0. A key that a query may not see takes part in no product.

#define OPERANDS                                                                            \
  __global const float *restrict q, __global const float *restrict k,                       \
      __global const float *restrict v, __global float *restrict o, long heads, long share, \
      long q_len, long kv_len, long head_dim, int causal, float scale
#define ITEMS (SIDE * SIDE)

// The keys that query i sees, the first ones.
long visible(long i, long q_len, long kv_len, int causal) {
  return causal ? clamp(i + 1 + kv_len - q_len, (long)0, kv_len) : kv_len;
}

float dot_of(__global const float* x, __global const float* y, long n) {
  float sum = 0.0f;
  for (long d = 0; d < n; ++d) sum += x[d] * y[d];
  return sum;
}

// Step 0. One item per query. Scores are not kept but computed twice, for the maximum and for the
// weights; o gathers in global memory. `heads` counts those of all batches.
__kernel void attention_naive(OPERANDS) {
  const long item = get_global_id(0);
  if (item >= heads * q_len) return;
  const long head = item / q_len;
  const long keys = visible(item % q_len, q_len, kv_len, causal);
  q += item * head_dim;
  o += item * head_dim;
  k += head / share * kv_len * head_dim;
  v += head / share * kv_len * head_dim;
  float high = -FLT_MAX;
  for (long j = 0; j < keys; ++j) {
    const float score = scale * dot_of(q, k + j * head_dim, head_dim);
    high = score > high ? score : high;
  }
  for (long d = 0; d < head_dim; ++d) o[d] = 0.0f;
  float sum = 0.0f;
  for (long j = 0; j < keys; ++j) {
    const float weight = exp(scale * dot_of(q, k + j * head_dim, head_dim) - high);
    sum += weight;
    for (long d = 0; d < head_dim; ++d) o[d] += weight * v[j * head_dim + d];
  }
  for (long d = 0; d < head_dim && keys > 0; ++d) o[d] /= sum;
}

// Step 1. A group per query, block after block of keys: an item has the score of one key, the
// weights wait in local memory, and an item gathers one column of o, so that v is read along memory.
// When a block raises the maximum, what was gathered is scaled down (online softmax).
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_group(OPERANDS) {
  __local float scratch[ITEMS];
  __local float weights[ITEMS];
  const int item = get_local_id(0);
  const long query = get_group_id(0);
  const long head = query / q_len;
  const long keys = visible(query % q_len, q_len, kv_len, causal);
  q += query * head_dim;
  o += query * head_dim;
  k += head / share * kv_len * head_dim;
  v += head / share * kv_len * head_dim;
  for (long d = item; d < head_dim; d += ITEMS) o[d] = 0.0f;
  float high = -FLT_MAX;
  float sum = 0.0f;
  for (long first = 0; first < keys; first += ITEMS) {
    const int count = (int)min(keys - first, (long)ITEMS);
    float score = -INFINITY;
    if (item < count) score = scale * dot_of(q, k + (first + item) * head_dim, head_dim);
    const float before = high;
    const float here = tree_max(score, scratch, ITEMS);
    high = here > high ? here : high;
    const float weight = item < count ? exp(score - high) : 0.0f;
    weights[item] = weight;
    const float shrink = exp(before - high);
    sum = sum * shrink + tree_add(weight, scratch, ITEMS);  // its barriers show the weights, too
    for (long d = item; d < head_dim; d += ITEMS) {
      float gathered = o[d] * shrink;
      for (int j = 0; j < count; ++j) gathered += weights[j] * v[(first + j) * head_dim + d];
      o[d] = gathered;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (long d = item; d < head_dim && keys > 0; d += ITEMS) o[d] /= sum;
}

// Step 2. A group has SIDE queries of a head and goes through tiles of SIDE keys: parts of q and k
// lie in local memory, where each is used SIDE times, and each load of v from the cache serves as
// many queries. Tiles that no query sees are left out.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_tiled(OPERANDS) {
  __local float qs[SIDE][SIDE + 1];
  __local float ks[SIDE][SIDE + 1];
  __local float scores[SIDE][SIDE + 1];
  const int tx = get_local_id(0) % SIDE;
  const int ty = get_local_id(0) / SIDE;
  const long row_tiles = (q_len + SIDE - 1) / SIDE;
  const long head = get_group_id(0) / row_tiles;
  const long row = get_group_id(0) % row_tiles * SIDE;
  const long query = row + ty;
  const bool is_query = query < q_len;
  const long keys = is_query ? visible(query, q_len, kv_len, causal) : 0;
  const long most = visible(min(row + SIDE, q_len) - 1, q_len, kv_len, causal);
  q += (head * q_len + row) * head_dim;
  o += (head * q_len + query) * head_dim;
  k += head / share * kv_len * head_dim;
  v += head / share * kv_len * head_dim;
  for (long d = tx; d < head_dim && is_query; d += SIDE) o[d] = 0.0f;
  // The query's maximum and sum: the same for all items of a row of the group.
  float high = -FLT_MAX;
  float sum = 0.0f;
  for (long first = 0; first < most; first += SIDE) {
    float score = 0.0f;
    for (long part = 0; part < head_dim; part += SIDE) {
      const bool inside = part + tx < head_dim;
      qs[ty][tx] = inside && is_query ? q[ty * head_dim + part + tx] : 0.0f;
      ks[ty][tx] = inside && first + ty < kv_len ? k[(first + ty) * head_dim + part + tx] : 0.0f;
      barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
      for (int d = 0; d < SIDE; ++d) score += qs[ty][d] * ks[tx][d];
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    scores[ty][tx] = scale * score;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int count = (int)clamp(keys - first, (long)0, (long)SIDE);
    const float before = high;
    for (int j = 0; j < count; ++j) high = scores[ty][j] > high ? scores[ty][j] : high;
    const float shrink = exp(before - high);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (tx < count) scores[ty][tx] = exp(scores[ty][tx] - high);
    barrier(CLK_LOCAL_MEM_FENCE);
    sum *= shrink;
    for (int j = 0; j < count; ++j) sum += scores[ty][j];
    for (long d = tx; d < head_dim && count > 0; d += SIDE) {
      float gathered = o[d] * shrink;
      for (int j = 0; j < count; ++j) gathered += scores[ty][j] * v[(first + j) * head_dim + d];
      o[d] = gathered;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (long d = tx; d < head_dim && keys > 0; d += SIDE) o[d] /= sum;
}
