// Sum by segment: LY segments to a group, LX items to one, each with V columns at a time. The edges of a
// segment stand at places start[s] to start[s+1] of `order`, or of the edges themselves.

__kernel __attribute__((reqd_work_group_size(LX * LY, 1, 1)))
void segment_sum(__global const float* x, __global const int* order, __global const int* start,
                 __global float* y, int segments, long cols, int ordered) {
  const int item = get_local_id(0);
  const long segment = (long)get_group_id(0) * LY + item / LX;
  if (segment >= segments) return;
  const int first = start[segment], last = start[segment + 1];
  for (long col = (long)(item % LX) * V; col < cols; col += LX * V) {
    const int count = (int)min((long)V, cols - col);
    floatv sum = 0;
    for (int place = first; place < last; ++place) {
      __global const float* row = x + (ordered ? order[place] : place) * cols + col;
      sum += count == V ? VLOAD(row) : load_some(row, count, 0);
    }
    if (count == V) {
      VSTORE(sum, y + segment * cols + col);
    } else {
      store_some(sum, y + segment * cols + col, count);
    }
  }
}
