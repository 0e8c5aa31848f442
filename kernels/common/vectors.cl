// Put before every room's .cl: vectors of V floats (V = 1, 2, 4, 8, 16 by -D) from memory of any
// alignment, with guarded forms for the ends of rows.

#define CAT_(x, y) x##y
#define CAT(x, y) CAT_(x, y)

#if V == 1
typedef float floatv;
#define VLOAD(p) (*(p))
#define VSTORE(v, p) (*(p) = (v))
#else
typedef CAT(float, V) floatv;
#define VLOAD(p) CAT(vload, V)(0, p)
#define VSTORE(v, p) CAT(vstore, V)(v, 0, p)
#endif

// The first `count` (1 to V-1) elements at p; `fill` in the other lanes. No byte beyond is touched.
floatv load_some(__global const float* p, int count, float fill) {
  float lane[V];
  for (int i = 0; i < V; ++i) lane[i] = i < count ? p[i] : fill;
  return VLOAD(lane);
}

// Stores the first `count` lanes.
void store_some(floatv v, __global float* p, int count) {
  float lane[V];
  VSTORE(v, lane);
  for (int i = 0; i < count; ++i) p[i] = lane[i];
}
