// LayerNorm, the ladder on a GPU: from one item per row to a group per row with wide accesses, one
// idea a rung. For reading and for `bench --ladder`; the fast path (common/norm.cl) goes on where
// this ends. The ideas: layernorm.hpp. All read a row three times: for the mean, for the variance
// about it, for the result; LX items a group. Sums carry their rounding errors along.

// Step 0. One item per row: neighbours are a row apart, and every access is a line of its own.
__kernel void layernorm_naive(__global const float* x, __global const float* gamma,
                              __global const float* beta, __global float* y, long rows, long cols,
                              float eps) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  x += row * cols;
  y += row * cols;
  float2 sum = (float2)(0.0f, 0.0f);
  for (long j = 0; j < cols; ++j) sum = add_pairs(sum, (float2)(x[j], 0.0f));
  const float mean = (sum.x + sum.y) / cols;
  float2 squares = (float2)(0.0f, 0.0f);
  for (long j = 0; j < cols; ++j) {
    squares = add_pairs(squares, (float2)((x[j] - mean) * (x[j] - mean), 0.0f));
  }
  const float scale = 1.0f / sqrt((squares.x + squares.y) / cols + eps);
  for (long j = 0; j < cols; ++j) y[j] = (x[j] - mean) * scale * gamma[j] + beta[j];
}

// Step 1. A group per row: neighbours read neighbouring memory; the sums of the items meet in a
// tree in local memory.
__kernel __attribute__((reqd_work_group_size(LX, 1, 1))) void layernorm_group(
    __global const float* x, __global const float* gamma, __global const float* beta,
    __global float* y, long rows, long cols, float eps) {
  __local float2 scratch[LX];
  x += (long)get_group_id(0) * cols;
  y += (long)get_group_id(0) * cols;
  const int item = get_local_id(0);
  float2 sum = (float2)(0.0f, 0.0f);
  for (long j = item; j < cols; j += LX) sum = add_pairs(sum, (float2)(x[j], 0.0f));
  sum = tree_add_pairs(sum, scratch, LX);
  const float mean = (sum.x + sum.y) / cols;
  float2 squares = (float2)(0.0f, 0.0f);
  for (long j = item; j < cols; j += LX) {
    squares = add_pairs(squares, (float2)((x[j] - mean) * (x[j] - mean), 0.0f));
  }
  squares = tree_add_pairs(squares, scratch, LX);
  const float scale = 1.0f / sqrt((squares.x + squares.y) / cols + eps);
  for (long j = item; j < cols; j += LX) y[j] = (x[j] - mean) * scale * gamma[j] + beta[j];
}

// Step 2. Accesses of 16 bytes where every row begins at a multiple of them, cols being one of
// four; the rung before otherwise.
__kernel __attribute__((reqd_work_group_size(LX, 1, 1))) void layernorm_vectors(
    __global const float4* x, __global const float4* gamma, __global const float4* beta,
    __global float4* y, long rows, long cols, float eps) {
  __local float2 scratch[LX];
  const long fours = cols / 4;
  x += (long)get_group_id(0) * fours;
  y += (long)get_group_id(0) * fours;
  const int item = get_local_id(0);
  float4 sum = 0.0f, lost = 0.0f;
  for (long j = item; j < fours; j += LX) add_exactly(&sum, &lost, x[j]);
  const float2 total = tree_add_pairs(add_lanes_exactly(sum, lost), scratch, LX);
  const float mean = (total.x + total.y) / cols;
  float4 squares = 0.0f;
  lost = 0.0f;
  for (long j = item; j < fours; j += LX) {
    add_exactly(&squares, &lost, (x[j] - mean) * (x[j] - mean));
  }
  const float2 all = tree_add_pairs(add_lanes_exactly(squares, lost), scratch, LX);
  const float scale = 1.0f / sqrt((all.x + all.y) / cols + eps);
  for (long j = item; j < fours; j += LX) y[j] = (x[j] - mean) * scale * gamma[j] + beta[j];
}
