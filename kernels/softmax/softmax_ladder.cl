// Softmax, the ladder on a GPU: from one item per row to a group per row with wide accesses, one
// idea a rung. For reading and for `bench --ladder`; the fast path (softmax.cl) goes on where this
// ends. The ideas: softmax.hpp. All make the three passes of the definition: maximum, exp and its
// sum, scaling; LX items a group.
// The maximum starts at -FLT_MAX: elements of -inf then weigh zero, and a row of nothing else
// divides 0 by 0. NaN never wins a maximum but spreads through exp and the sum. Sums carry their
// rounding errors along, so that the length of a row costs no digits.

// Step 0. One item per row: neighbours are a row apart, and every access is a line of its own.
__kernel void softmax_naive(__global const float* x, __global float* y, long rows, long cols) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  x += row * cols;
  y += row * cols;
  float high = -FLT_MAX;
  for (long j = 0; j < cols; ++j) high = x[j] > high ? x[j] : high;
  float2 sum = (float2)(0.0f, 0.0f);
  for (long j = 0; j < cols; ++j) {
    y[j] = exp(x[j] - high);
    sum = add_pairs(sum, (float2)(y[j], 0.0f));
  }
  const float scale = 1.0f / (sum.x + sum.y);
  for (long j = 0; j < cols; ++j) y[j] *= scale;
}

// Step 1. A group per row: neighbours read neighbouring memory; maxima and sums of the items meet
// in a tree in local memory.
__kernel __attribute__((reqd_work_group_size(LX, 1, 1))) void softmax_group(
    __global const float* x, __global float* y, long rows, long cols) {
  __local float2 scratch[LX];
  x += (long)get_group_id(0) * cols;
  y += (long)get_group_id(0) * cols;
  const int item = get_local_id(0);
  float high = -FLT_MAX;
  for (long j = item; j < cols; j += LX) high = x[j] > high ? x[j] : high;
  high = tree_max(high, (__local float*)scratch, LX);
  float2 sum = (float2)(0.0f, 0.0f);
  for (long j = item; j < cols; j += LX) {
    y[j] = exp(x[j] - high);
    sum = add_pairs(sum, (float2)(y[j], 0.0f));
  }
  sum = tree_add_pairs(sum, scratch, LX);
  const float scale = 1.0f / (sum.x + sum.y);
  for (long j = item; j < cols; j += LX) y[j] *= scale;
}

// Step 2. Accesses of 16 bytes wherever the row allows them: its elements before the first multiple
// of four and after the last go one by one to the first items.
__kernel __attribute__((reqd_work_group_size(LX, 1, 1))) void softmax_vectors(
    __global const float* x, __global float* y, long rows, long cols) {
  __local float2 scratch[LX];
  const long start = (long)get_group_id(0) * cols;
  const int item = get_local_id(0);
  const long before = min((4 - start % 4) % 4, cols);
  const long fours = (cols - before) / 4;
  const long after = before + 4 * fours;
  x += start;
  y += start;
  __global const float4* x4 = (__global const float4*)(x + before);
  __global float4* y4 = (__global float4*)(y + before);
  // The one element that this item has at the ends, at most 3 at each; cols: none.
  const long behind = after + item - 4;
  const long at = item < before ? item : item >= 4 && behind < cols ? behind : cols;

  float4 highs = at < cols && x[at] > -FLT_MAX ? x[at] : -FLT_MAX;
  for (long j = item; j < fours; j += LX) {
    const float4 part = x4[j];
    highs = part > highs ? part : highs;
  }
  const float high = tree_max(max_lane(highs), (__local float*)scratch, LX);

  floatv sum = 0.0f, lost = 0.0f;
  float edge = 0.0f;
  if (at < cols) edge = exp(x[at] - high);
  for (long j = item; j < fours; j += LX) {
    const float4 part = exp(x4[j] - high);
    y4[j] = part;
    add_exactly(&sum, &lost, part);
  }
  const float2 of_item = add_pairs(add_lanes_exactly(sum, lost), (float2)(edge, 0.0f));
  const float2 total = tree_add_pairs(of_item, scratch, LX);
  const float scale = 1.0f / (total.x + total.y);
  for (long j = item; j < fours; j += LX) y4[j] *= scale;
  if (at < cols) y[at] = edge * scale;
}
