// What the kernels for matrix units share, put before them: a group's tile, and adding up the sums of groups
// that share k.

#ifndef WN
#define WN 1
#endif
#define K_BYTES (BYTES * (1 + PACKED))  // of a step of k in a row
#define ROW 128                         // bytes of k in a tile
#define BK (ROW / K_BYTES)
#define BM (WM * MT * 16)
#define BN (WN * NT * 8)
#define OWN_COLS (BN / (1 + GATE))  // columns of c of a tile

// What 3xtf32 needs of a and b as they are: where a sum is infinite or NaN, strict float32 decides.
#if TYPE == F32
#define STRICT_ARGS , __global const float *restrict strict_a, __global const float *restrict strict_b
#define STRICT_PARAMS , __global const float *strict_a, __global const float *strict_b
#define STRICT , strict_a, strict_b
float finished(float sum, long batch, int row, int col, int m, int n, int k STRICT_PARAMS) {
  if (isfinite(sum)) return sum * DOWNSCALE;
  strict_a += batch * m * k + (long)row * (TRANS_A ? 1 : k);
  strict_b += batch * n * k + (long)col * (TRANS_B ? k : 1);
  float strict = 0.0f;
  for (int p = 0; p < k; ++p)
    strict = fma(strict_a[(long)p * (TRANS_A ? m : 1)], strict_b[(long)p * (TRANS_B ? 1 : n)], strict);
  return strict;
}
#else
#define STRICT_ARGS
#define STRICT_PARAMS
#define STRICT
#endif

// The first `count` of four neighbours of a group's own sums.
void put_part(__global number* to, number4 sums, int count) {
  if (count > 0) to[0] = sums.x;
  if (count > 1) to[1] = sums.y;
  if (count > 2) to[2] = sums.z;
  if (count > 3) to[3] = sums.w;
}

// c from the SPLITS parts, added in order; an item per element. With GATE a part is gate's sums, then up's.
__kernel void add_parts(__global const number* restrict parts, int batches, int m, int n,
                        int k STRICT_ARGS OUTPUT_ARGS) {
  const long at = get_global_id(0);
  const long elements = (long)m * n;
  if (at >= batches * elements) return;
  const long batch = at / elements;
  number total[1 + GATE];
  for (int product = 0; product <= GATE; ++product) {
    total[product] = 0;
    for (int s = 0; s < SPLITS; ++s) {
      total[product] +=
          parts[(((long)s * batches + batch) * (1 + GATE) + product) * elements + at % elements];
    }
  }
#if GATE
  total[0] = gated((number4)(total[0]), (number4)(total[1])).x;
#elif TYPE == F32
  total[0] = finished(total[0], batch, at % elements / n, at % n, m, n, k STRICT);
#endif
  put_one(total[0], at, at % n, OUTPUT);
}
