// Put before every room's .cl: vectors of V floats (V = 1, 2, 4, 8, 16 by -D) from memory of any
// alignment, with guarded forms for the ends of rows.

#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)

// Functions that take an item's arrays or structs: a call would put them in memory.
#define INLINED __attribute__((always_inline))

// A loop written out, for arrays in registers.
#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < (count); ++i)

#if V == 1
typedef float floatv;
#define VLOAD(p) (*(p))
#define VSTORE(v, p) (*(p) = (v))
#else
typedef CAT(float, V) floatv;
#define VLOAD(p) CAT(vload, V)(0, p)
#define VSTORE(v, p) CAT(vstore, V)(v, 0, p)
#endif

// A bfloat16: the upper half of the float; a NaN, which rounding could carry into the sign, is made
// quiet.
ushort bfloat_of(float x) {
  const uint bits = as_uint(x);
  return isnan(x) ? (bits >> 16) | 64 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// Elements of tensors in memory, by -DFLOAT16 and -DBFLOAT16 shorter than the floats that are
// computed with. GLOAD and GSTORE: vectors of them as floatv; stores round to nearest, ties to even.
#if defined(FLOAT16)
typedef half element;
#define LOAD_ONE(p, i) vload_half(i, p)
#define STORE_ONE(v, p, i) vstore_half_rte(v, i, p)
#if V == 1
#define GLOAD(p) vload_half(0, p)
#define GSTORE(v, p) vstore_half_rte(v, 0, p)
#else
#define GLOAD(p) CAT(vload_half, V)(0, p)
#define GSTORE(v, p) CAT(CAT(vstore_half, V), _rte)(v, 0, p)
#endif
#elif defined(BFLOAT16)
typedef ushort element;
#if V == 1
typedef uint uintv;
#define AS_FLOATV as_float
#define AS_UINTV as_uint
#define TO_UINTV convert_uint
#define TO_USHORTV convert_ushort
#define LOAD_USHORTS(p) (*(p))
#define STORE_USHORTS(v, p) (*(p) = (v))
#else
typedef CAT(uint, V) uintv;
#define AS_FLOATV CAT(as_float, V)
#define AS_UINTV CAT(as_uint, V)
#define TO_UINTV CAT(convert_uint, V)
#define TO_USHORTV CAT(convert_ushort, V)
#define LOAD_USHORTS(p) CAT(vload, V)(0, p)
#define STORE_USHORTS(v, p) CAT(vstore, V)(v, 0, p)
#endif
#define LOAD_ONE(p, i) as_float((uint)(p)[i] << 16)
#define STORE_ONE(v, p, i) ((p)[i] = bfloat_of(v))
#define GLOAD(p) AS_FLOATV(TO_UINTV(LOAD_USHORTS(p)) << 16)
#if V == 1
#define GSTORE(v, p) STORE_ONE(v, p, 0)
#else
void store_bfloats(floatv v, __global ushort* p) {
  const uintv bits = AS_UINTV(v);
  const uintv rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  STORE_USHORTS(TO_USHORTV(select(rounded, bits >> 16 | 64, isnan(v))), p);
}
#define GSTORE(v, p) store_bfloats(v, p)
#endif
#else
typedef float element;
#define LOAD_ONE(p, i) ((p)[i])
#define STORE_ONE(v, p, i) ((p)[i] = (v))
#define GLOAD VLOAD
#define GSTORE VSTORE
#endif

// The first `count` (1 to V-1) elements at p; `fill` in the other lanes. No byte beyond is touched.
floatv load_some(__global const element* p, int count, float fill) {
  float lane[V];
  for (int i = 0; i < V; ++i) lane[i] = i < count ? LOAD_ONE(p, i) : fill;
  return VLOAD(lane);
}

// Stores the first `count` lanes.
void store_some(floatv v, __global element* p, int count) {
  float lane[V];
  VSTORE(v, lane);
  for (int i = 0; i < count; ++i) STORE_ONE(lane[i], p, i);
}

// Lanes from `count` on set to zero.
floatv keep_some(floatv v, int count) {
  float lane[V];
  VSTORE(v, lane);
  for (int i = 0; i < V; ++i) lane[i] = i < count ? lane[i] : 0.0f;
  return VLOAD(lane);
}

float add_lanes(floatv v) {
  float lane[V];
  VSTORE(v, lane);
  for (int step = V / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  return lane[0];
}

// Here and in tree_max a NaN loses against every number.
float max_lane(floatv v) {
  float lane[V];
  VSTORE(v, lane);
  for (int i = 1; i < V; ++i) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
  return lane[0];
}

// Sums of almost twice the precision: x + y = sum + lost exactly (Knuth).
void add_exactly(floatv* sum, floatv* lost, floatv x) {
  const floatv old = *sum;
  *sum = old + x;
  const floatv added = *sum - old;
  *lost += (old - (*sum - added)) + (x - added);
}

float2 add_pairs(float2 a, float2 b) {
  const float sum = a.x + b.x;
  const float added = sum - a.x;
  return (float2)(sum, (a.x - (sum - added)) + (b.x - added) + a.y + b.y);
}

// The lanes of sum and lost as one such pair.
float2 add_lanes_exactly(floatv sum, floatv lost) {
  float lane[V];
  float lane_lost[V];
  VSTORE(sum, lane);
  VSTORE(lost, lane_lost);
  float2 total = (float2)(lane[0], lane_lost[0]);
  for (int i = 1; i < V; ++i) total = add_pairs(total, (float2)(lane[i], lane_lost[i]));
  return total;
}

// Over `along` neighbouring items (a power of two), the same for all of them: a tree in local
// memory of one float per item of the group. Every item of the group must call it.
float tree_add(float value, __local float* scratch, int along) {
  if (along == 1) return value;
  const int lid = get_local_id(0);
  const int place = lid % along;
  scratch[lid] = value;
  for (int step = along / 2; step > 0; step /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (place < step) scratch[lid] += scratch[lid + step];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const float total = scratch[lid - place];
  barrier(CLK_LOCAL_MEM_FENCE);
  return total;
}

float tree_max(float value, __local float* scratch, int along) {
  if (along == 1) return value;
  const int lid = get_local_id(0);
  const int place = lid % along;
  scratch[lid] = value;
  for (int step = along / 2; step > 0; step /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (place < step && scratch[lid + step] > scratch[lid]) scratch[lid] = scratch[lid + step];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const float largest = scratch[lid - place];
  barrier(CLK_LOCAL_MEM_FENCE);
  return largest;
}

float2 tree_add_pairs(float2 value, __local float2* scratch, int along) {
  if (along == 1) return value;
  const int lid = get_local_id(0);
  const int place = lid % along;
  scratch[lid] = value;
  for (int step = along / 2; step > 0; step /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (place < step) scratch[lid] = add_pairs(scratch[lid], scratch[lid + step]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const float2 total = scratch[lid - place];
  barrier(CLK_LOCAL_MEM_FENCE);
  return total;
}

// exp(a - b) for maxima a <= b of parts of a row: the difference is exact, since all elements of the
// part share its error.
float weight_of(float a, float b) {
  const float apart = a - b;
  const float weight = exp(apart);
  if (!(apart > -200.0f)) return weight;  // zero or NaN
  const float taken = apart - a;
  return fma(weight, (a - (apart - taken)) - (b + taken), weight);
}
