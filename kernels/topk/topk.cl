// The largest elements. An item finds the k largest of its part of a row, vectors of V floats that lie
// `parts` vectors apart, in a list that stays sorted; then an item for each row merges the lists.

// The order of topk.hpp: NaN first, then larger values, of equals the lower id.
int is_before(float value, int id, float other, int other_id) {
  const int is_nan = isnan(value), other_is_nan = isnan(other);
  if (is_nan != other_is_nan) return is_nan;
  if (!is_nan && value != other) return value > other;
  return id < other_id;
}

// Whether a lane of v reaches `least` or is NaN.
int any_reaches(floatv v, float least) {
#if V == 1
  return !(v < least);
#else
  return !all(isless(v, (floatv)(least)));
#endif
}

// A list's unused places hold what everything comes before.
#define NOTHING INT_MAX

__kernel void topk_parts(__global const float* x, __global float* part_values,
                         __global int* part_ids, long rows, long cols, int k, int parts) {
  const long task = get_global_id(0);
  const long row = task / parts;
  if (row >= rows) return;
  __global float* values = part_values + task * k;
  __global int* ids = part_ids + task * k;
  for (int i = 0; i < k; ++i) {
    values[i] = -INFINITY;
    ids[i] = NOTHING;
  }
  x += row * cols;
  for (long at = task % parts * V; at < cols; at += parts * V) {
    const int count = (int)min((long)V, cols - at);
    if (count == V && !any_reaches(VLOAD(x + at), values[k - 1])) continue;
    for (int lane = 0; lane < count; ++lane) {
      const float value = x[at + lane];
      const int id = (int)at + lane;
      if (!is_before(value, id, values[k - 1], ids[k - 1])) continue;
      int place = k - 1;
      for (; place > 0 && is_before(value, id, values[place - 1], ids[place - 1]); --place) {
        values[place] = values[place - 1];
        ids[place] = ids[place - 1];
      }
      values[place] = value;
      ids[place] = id;
    }
  }
}

// `heads`: of each list, how many of its elements have been taken.
__kernel void topk_merge(__global const float* part_values, __global const int* part_ids,
                         __global int* heads, __global float* values, __global int* ids,
                         long rows, int k, int parts) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  heads += row * parts;
  for (int part = 0; part < parts; ++part) heads[part] = 0;
  for (int i = 0; i < k; ++i) {
    int best = -1;
    float value = 0;
    int id = 0;
    for (int part = 0; part < parts; ++part) {
      if (heads[part] == k) continue;
      const long at = (row * parts + part) * k + heads[part];
      if (best >= 0 && !is_before(part_values[at], part_ids[at], value, id)) continue;
      best = part;
      value = part_values[at];
      id = part_ids[at];
    }
    ++heads[best];
    values[row * k + i] = value;
    ids[row * k + i] = id;
  }
}
