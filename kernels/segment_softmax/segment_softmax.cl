// Softmax by segment: LY segments to a group, LX items to one, each with V columns at a time. The edges
// of a segment stand at places start[s] to start[s+1] of `order`, or of the edges themselves.

floatv load_columns(__global const float* row, int count) {
  return count == V ? VLOAD(row) : load_some(row, count, 0);
}
void store_columns(floatv value, __global float* row, int count) {
  if (count == V) {
    VSTORE(value, row);
  } else {
    store_some(value, row, count);
  }
}

__kernel __attribute__((reqd_work_group_size(LX * LY, 1, 1)))
void segment_softmax(__global const float* x, __global const int* order, __global const int* start,
                     __global float* y, int segments, long cols, int ordered) {
  const int item = get_local_id(0);
  const long segment = (long)get_group_id(0) * LY + item / LX;
  if (segment >= segments) return;
  const int first = start[segment], last = start[segment + 1];
  for (long col = (long)(item % LX) * V; col < cols; col += LX * V) {
    const int count = (int)min((long)V, cols - col);
    // At least -FLT_MAX, so that -inf weighs zero; a NaN is no maximum and comes back through the sum.
    floatv largest = -FLT_MAX;
    for (int place = first; place < last; ++place) {
      const floatv value = load_columns(x + (ordered ? order[place] : place) * cols + col, count);
      largest = fmax(value, largest);
    }
    floatv sum = 0, lost = 0;
    for (int place = first; place < last; ++place) {
      const long at = (ordered ? order[place] : place) * cols + col;
      const floatv term = exp(load_columns(x + at, count) - largest);
      store_columns(term, y + at, count);
      add_exactly(&sum, &lost, term);
    }
    const floatv scale = 1.0f / (sum + lost);
    for (int place = first; place < last; ++place) {
      const long at = (ordered ? order[place] : place) * cols + col;
      store_columns(load_columns(y + at, count) * scale, y + at, count);
    }
  }
}
