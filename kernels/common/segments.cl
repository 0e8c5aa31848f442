// segment_sum and segment_softmax: a stable sort of edges by segment, where each segment's edges begin,
// and what is formed of them. CHUNKS items sort, each a chunk of edges of its own, by as
// many digits of the segment's number as `mask` says. SCAN items in one group turn counts into
// places.

int key_of(__global const int* segment, int edge, int shift, int mask) {
  return segment[edge] >> shift & mask;
}

// The first edge of a chunk; of chunk CHUNKS the end.
int chunk_start(int edges, int chunk) {
  return edges / CHUNKS * chunk + min(chunk, edges % CHUNKS);
}

// counts[key·CHUNKS + chunk] = edges of the chunk with that key. `from`: edges in the order of the
// digits before; not read where `first`.
__kernel void segment_count(__global const int* segment, __global const int* from,
                            __global int* counts, int edges, int first, int shift, int mask,
                            int keys) {
  const int chunk = get_global_id(0);
  if (chunk >= CHUNKS) return;
  for (int key = 0; key < keys; ++key) counts[(long)key * CHUNKS + chunk] = 0;
  const int end = chunk_start(edges, chunk + 1);
  for (int i = chunk_start(edges, chunk); i < end; ++i) {
    ++counts[(long)key_of(segment, first ? i : from[i], shift, mask) * CHUNKS + chunk];
  }
}

// Each count becomes the sum of all counts before it.
__kernel __attribute__((reqd_work_group_size(SCAN, 1, 1))) void segment_scan(__global int* counts,
                                                                             long n) {
  __local int before[SCAN];
  const int item = get_local_id(0);
  const long begin = n / SCAN * item + min((long)item, n % SCAN);
  const long end = n / SCAN * (item + 1) + min((long)item + 1, n % SCAN);
  int sum = 0;
  for (long i = begin; i < end; ++i) sum += counts[i];
  before[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  sum = 0;
  for (int other = 0; other < item; ++other) sum += before[other];
  for (long i = begin; i < end; ++i) {
    const int count = counts[i];
    counts[i] = sum;
    sum += count;
  }
}

__kernel void segment_place(__global const int* segment, __global const int* from,
                            __global int* counts, __global int* to, int edges, int first, int shift,
                            int mask) {
  const int chunk = get_global_id(0);
  if (chunk >= CHUNKS) return;
  const int end = chunk_start(edges, chunk + 1);
  for (int i = chunk_start(edges, chunk); i < end; ++i) {
    const int edge = first ? i : from[i];
    to[counts[(long)key_of(segment, edge, shift, mask) * CHUNKS + chunk]++] = edge;
  }
}

// start[s] = the first place of segment s, start[segments] = edges. An item for each place and one
// for the end, which writes where the segments between it and the place before begin.
__kernel void segment_starts(__global const int* segment, __global const int* order,
                             __global int* start, int edges, int segments, int ordered) {
  const int place = get_global_id(0);
  if (place > edges) return;
  const int here = place == edges ? segments : segment[ordered ? order[place] : place];
  const int known = place == 0 ? -1 : segment[ordered ? order[place - 1] : place - 1];
  for (int s = known + 1; s <= here; ++s) start[s] = place;
}

// In what follows LY segments belong to a group, LX items to a segment, each with V columns at a time.
// The edges of segment s are at places start[s] to start[s+1] of `order`, or of the edges themselves.
#define FOR_COLUMNS(col, count)                                                                  \
  for (long col = (long)(get_local_id(0) % LX) * V, count = min((long)V, cols - col); col < cols; \
       col += LX * V, count = min((long)V, cols - col))
#define FOR_EDGES(at)                                                                       \
  for (long place = first, at; place < last &&                                               \
       (at = (ordered ? order[place] : place) * cols + col, true); ++place)

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
void segment_sum(__global const float* x, __global const int* order, __global const int* start,
                 __global float* y, int segments, long cols, int ordered) {
  const long segment = (long)get_group_id(0) * LY + get_local_id(0) / LX;
  if (segment >= segments) return;
  const int first = start[segment], last = start[segment + 1];
  FOR_COLUMNS(col, count) {
    floatv sum = 0;
    FOR_EDGES(at) sum += load_columns(x + at, count);
    store_columns(sum, y + segment * cols + col, count);
  }
}

__kernel __attribute__((reqd_work_group_size(LX * LY, 1, 1)))
void segment_softmax(__global const float* x, __global const int* order, __global const int* start,
                     __global float* y, int segments, long cols, int ordered) {
  const long segment = (long)get_group_id(0) * LY + get_local_id(0) / LX;
  if (segment >= segments) return;
  const int first = start[segment], last = start[segment + 1];
  FOR_COLUMNS(col, count) {
    // At least -FLT_MAX, so that -inf weighs zero. A NaN is not a maximum; the sum propagates it.
    floatv largest = -FLT_MAX;
    FOR_EDGES(at) largest = fmax(load_columns(x + at, count), largest);
    floatv sum = 0, lost = 0;
    FOR_EDGES(at) {
      const floatv term = exp(load_columns(x + at, count) - largest);
      store_columns(term, y + at, count);
      add_exactly(&sum, &lost, term);
    }
    const floatv scale = 1.0f / (sum + lost);
    FOR_EDGES(at) store_columns(load_columns(y + at, count) * scale, y + at, count);
  }
}
