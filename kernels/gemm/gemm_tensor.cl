// c = alpha·op(a)·op(b) + beta·c0 on matrix units that take tf32 (11 significant bits), as accurate
// as float32 (math 3xtf32): x = big + small, both tf32, and
//   a·b = small_a·big_b + big_a·small_b + big_a·big_b      (small_a·small_b is below 2^-22·|a·b|).
// The idea: Markidis et al. 2018 and CUTLASS example 27; what its accuracy hangs on: Ootomo & Yokota,
// arXiv 2203.03341. Three things are done that a plain splitting gets wrong:
//   Sums. The units cut their sums off instead of rounding, always towards zero: a model of them that
//   keeps 25 bits is 990 · 2^-24 off after 4096 products of one sign. So products of CHUNK·8 steps of
//   k are summed in a fragment that starts at zero, and fragments by float32 additions, which round.
//   Tiny values. Below 2^-113 the small part has no bits left in tf32, which has float32's exponents.
//   Both operands are therefore scaled by 2^13, exactly: every float keeps 22 bits, and subnormal
//   ones all they have.
//   Huge values, infinity, NaN. Scaled values from 2^115 on, sums from 2^102 on, and infinities
//   (their small part is inf - inf) end as infinity or NaN. An element of c that is not finite is
//   computed again in plain float32, so that it is what strict arithmetic makes it.
//
// Measured on an H200, largest error over sum |a||b| in units of 2^-24, strict float32 beside it:
// k = 8, where single products count (22 bits of 24, no small_a·small_b): 3.4 to 7.9 (2.6 to 4.5);
// k = 64: 1.3 to 8.0 (2.7 to 9.1); k = 1024 and 8192: 0.2 to 6.0 (0.3 to 8.1).
//
// A group of WM × WN warps owns BM × BN elements of c, a warp MT fragments of 16 rows × NT of 8
// columns. Copies of tiles t+1 … t+STAGES-1 are under way while tile t is multiplied (code_paths.cl); one
// barrier a tile. Operands are split when fragments are loaded: 4 operations an element, which a
// warp of 64 × 64 uses 3·64 times.
//
// Lanes. The 32 items of a warp hold one fragment together. With CODE_PATH=1 each is a work-item and
// WARP_LANES is 1; with CODE_PATH=0 one work-item plays all 32 one after the other, and every array of a lane's has a
// dimension WARP_LANES. So the portable code path checks the very layout of fragments.
//   Lane 4g + q holds, of the 8 steps of k of a fragment, 2q and 2q + 1 (the units' q and q + 4: any
//   order is right as long as a and b share it); of 32 rows of a and columns of b, 4g … 4g + 3; and
//   of 32 rows × 32 columns of c the rows 4g … 4g + 3 and columns 8q … 8q + 7.
//
// Tiles in local memory, without bank conflicts:
//   WIDE (rows of the tile along m or n; a transposed, b not): k-major as in memory; a lane loads 4
//   neighbours of one row. Fours are swapped by XOR with 2·(k/2 mod 4).
//   DEEP (rows along k; a not transposed, b transposed): slabs of 8 steps of k, in each 8 floats of
//   every row; a lane loads two neighbours. Row 4g + i of 32 is at place 8i + g XOR a
//   number of the slab's own: 16 lanes then read 128 bytes side by side, and copies of one row's
//   slabs go to different banks.
// PACKED=1: pack_a and pack_b split both operands once and lay big and small parts out as fragments,
// tile by tile, edges and transpositions included. Then a copy is one straight piece, a fragment
// four floats a lane, and the loop holds products, additions and loads only: 2.9 instructions a
// product instead of 4.1. It costs 20 bytes an element through memory, which large products repay.
// Groups walk c in bands of RASTER row tiles, so that those that run together share a's and b's
// tiles in the L2 cache. With SPLITS > 1 each group takes a share of k and writes its sums to
// `parts`, which add_scaled_parts adds up in order.

#define BM (WM * MT * 16)
#define BN (WN * NT * 8)
#if CODE_PATH == 1
#define ITEMS (32 * WM * WN)
#else
#define ITEMS (WM * WN)
#endif
#define UPSCALE 8192.0f                     // 2^13, of a and of b
#define DOWNSCALE 1.490116119384765625e-8f  // 2^-26, of sums

// 0, 2, 3, 1: both bits of a place change over four slabs, the upper one over two.
#define SLAB_SWAP(s) (0x78 >> 2 * (s)&3)

// Where float `at` of a tile, counted in the order of copying, comes from and goes to.
#define DEEP_ROW(at, R) ((at) / BK / 32 * 32 + (at) / BK % 8 * 4 + (at) / BK / 8 % 4)
#define DEEP_K(at, R) ((at) % BK)
#define DEEP_TO(at, R) \
  ((DEEP_K(at, R) / 8 * (R) + ((at) / BK ^ SLAB_SWAP(DEEP_K(at, R) / 8))) * 8 + (at) % 8)
#define WIDE_ROW(at, R) ((at) % (R))
#define WIDE_K(at, R) ((at) / (R))
#define WIDE_TO(at, R) (((at) / 4 ^ WIDE_K(at, R) / 2 % 4 * 2) * 4 + (at) % 4)

// Copies a tile of R rows (along m or n) × BK steps of k, COPY floats at a time: zeros where rows
// from r_room or steps from k_room on do not exist, both counted from the item's own first float,
// which is at `from` and goes to tile[to]. Sides of a tile are powers of two, so that the bits of
// an item's first and those that its later ones add are disjoint, but for the two that XOR touches.
// No branch: the compiler mixes the copies with products.
#define SWAPPED_BITS 24
#define COPY_TILE(tile, to, R, COPY, from, r_room, k_room, ROW, K, TO, ROW_STRIDE, K_STRIDE)   \
  UNROLL_LANES                                                                                 \
  for (int i = 0; i < ((R)*BK + ITEMS * COPY - 1) / (ITEMS * COPY); ++i) {                     \
    const int step = i * ITEMS * COPY;                                                         \
    if ((R)*BK < ITEMS * COPY && lid * COPY >= (R)*BK) break;                                  \
    CAT(copy_async, COPY)                                                                      \
    ((tile) + ((to) ^ (TO(step, R) & SWAPPED_BITS)) + (TO(step, R) & ~SWAPPED_BITS),           \
     (from) + ((long)ROW(step, R) * (ROW_STRIDE) + (long)K(step, R) * (K_STRIDE)),             \
     ROW(step, R) < (r_room) && K(step, R) < (k_room) ? COPY : 0);                             \
  }

// x[i][t] = element 4g + i mod 4 + i/4·32 from row `first` of the tile on, at step 8·slab + 2q + t.
#define LOAD_DEEP(x, count, tile, R, slab, first)                                             \
  UNROLL_LANES                                                                                \
  for (int i = 0; i < (count); ++i) {                                                         \
    const float2 pair = *(__local const float2*)((tile) + ((slab) * (R) + (first) + 8 * i +   \
                                                           (g ^ SLAB_SWAP(slab))) *           \
                                                              8 +                             \
                                                 2 * q);                                      \
    x[i][0] = pair.x, x[i][1] = pair.y;                                                       \
  }
#define LOAD_WIDE(x, count, tile, R, slab, first)                                             \
  UNROLL_LANES                                                                                \
  for (int t = 0; t < 2; ++t)                                                                 \
    UNROLL_LANES                                                                              \
  for (int i = 0; i < (count); i += 4) {                                                      \
    const float4 loaded = *(__local const float4*)((tile) + (8 * (slab) + 2 * q + t) * (R) +    \
                                                 (first) + 8 * i + 4 * (g ^ (2 * q)));        \
    x[i][t] = loaded.x, x[i + 1][t] = loaded.y, x[i + 2][t] = loaded.z, x[i + 3][t] = loaded.w;       \
  }

#if TRANS_A
#define A_KIND(what) WIDE_##what
#define LOAD_A LOAD_WIDE
#define A_ROW_STRIDE 1
#define A_K_STRIDE m
#define A_AT(row, p) ((long)(p)*m + (row))
#else
#define A_KIND(what) DEEP_##what
#define LOAD_A LOAD_DEEP
#define A_ROW_STRIDE k
#define A_K_STRIDE 1
#define A_AT(row, p) ((long)(row)*k + (p))
#endif
#if TRANS_B
#define B_KIND(what) DEEP_##what
#define LOAD_B LOAD_DEEP
#define B_COL_STRIDE k
#define B_K_STRIDE 1
#define B_AT(p, col) ((long)(col)*k + (p))
#else
#define B_KIND(what) WIDE_##what
#define LOAD_B LOAD_WIDE
#define B_COL_STRIDE 1
#define B_K_STRIDE n
#define B_AT(p, col) ((long)(p)*n + (col))
#endif
#define PARTS (1 + PACKED)  // big and small ones, or floats yet to be split
#define STAGE_FLOATS (PARTS * (BM + BN) * BK)

#define SPLIT(big, small, x) SPLIT_TF32(big, small, (x)*UPSCALE)

#if PACKED
// Fragments as pack_a and pack_b laid them out: 128 big parts, 128 small ones, a lane's four together.
#define PACKED_AT(tile, R, slab, place, part, lane) \
  *(__local const float4*)((tile) + (((slab) * ((R) / 16) + (place)) * 2 + (part)) * 128 + (lane)*4)
#define LOAD_FRAGMENTS_A(big, small, lane, tile, slab)                                             \
  UNROLL_LANES                                                                                     \
  for (int i = 0; i < MT; ++i) {                                                                   \
    const float4 u = PACKED_AT(tile, BM, slab, warp_row / 16 + i, 0, lane);                        \
    const float4 v = PACKED_AT(tile, BM, slab, warp_row / 16 + i, 1, lane);                        \
    big[i][l][0] = u.x, big[i][l][1] = u.y, big[i][l][2] = u.z, big[i][l][3] = u.w;                \
    small[i][l][0] = v.x, small[i][l][1] = v.y, small[i][l][2] = v.z, small[i][l][3] = v.w;        \
  }
#define LOAD_FRAGMENTS_B(big, small, lane, tile, slab, four)                                       \
  UNROLL_LANES                                                                                     \
  for (int i = 0; i < 2; ++i) {                                                                    \
    const float4 u = PACKED_AT(tile, BN, slab, (warp_col + 8 * (four)) / 16 + i, 0, lane);         \
    const float4 v = PACKED_AT(tile, BN, slab, (warp_col + 8 * (four)) / 16 + i, 1, lane);         \
    big[2 * i][l][0] = u.x, big[2 * i][l][1] = u.y;                                                \
    big[2 * i + 1][l][0] = u.z, big[2 * i + 1][l][1] = u.w;                                        \
    small[2 * i][l][0] = v.x, small[2 * i][l][1] = v.y;                                            \
    small[2 * i + 1][l][0] = v.z, small[2 * i + 1][l][1] = v.w;                                    \
  }
#else
#define LOAD_FRAGMENTS_A(big, small, lane, tile, slab)                                             \
  {                                                                                                \
    const int g = (lane) / 4;                                                                      \
    const int q = (lane) % 4;                                                                      \
    float x[2 * MT][2];                                                                            \
    LOAD_A(x, 2 * MT, tile, BM, slab, warp_row)                                                    \
    UNROLL_LANES                                                                                   \
    for (int i = 0; i < MT; ++i)                                                                   \
      UNROLL_LANES                                                                                 \
    for (int r = 0; r < 4; ++r) SPLIT(big[i][l][r], small[i][l][r], x[2 * i + r % 2][r / 2])       \
  }
#define LOAD_FRAGMENTS_B(big, small, lane, tile, slab, four)                                       \
  {                                                                                                \
    const int g = (lane) / 4;                                                                      \
    const int q = (lane) % 4;                                                                      \
    float x[4][2];                                                                                 \
    LOAD_B(x, 4, tile, BN, slab, warp_col + 8 * (four))                                            \
    UNROLL_LANES                                                                                   \
    for (int j = 0; j < 4; ++j)                                                                    \
      UNROLL_LANES                                                                                 \
    for (int r = 0; r < 2; ++r) SPLIT(big[j][l][r], small[j][l][r], x[j][r])                       \
  }
#endif

// One element of op(a)·op(b) in strict float32.
float strict_dot(__global const float* a, __global const float* b, int m, int n, int k, int row,
                 int col) {
  float sum = 0.0f;
  for (int p = 0; p < k; ++p) sum = fma(a[A_AT(row, p)], b[B_AT(p, col)], sum);
  return sum;
}

// Splits an operand once and lays its parts out as fragments, [batch][tile][slab of 8 steps of k]
// [16 rows][big, small][lane][4], zeros beyond the edges: tiles are copied in one piece and fragments
// loaded 16 bytes a lane. `rows` along m (n), R of them a tile. An item takes rows 4g … 4g + 3 of 32
// and steps 2q, 2q + 1 of 8; of a fragment of a its four are two rows of one step, then of the
// next; of b two steps of one column, then of the next.
#define PACK(NAME, R, AT, IS_DEEP, COPY, IS_A)                                                     \
  __kernel void NAME(__global const float* restrict from, __global float* restrict packed,         \
                     int batches, int rows, int m, int n, int k) {                                 \
    const uint tiles = (rows + (R)-1) / (R);                                                       \
    const uint slabs = (k + BK - 1) / BK * (BK / 8);                                               \
    const uint at = get_global_id(0);                                                              \
    const int lane = at % 32;                                                                      \
    const int group = at / 32 % ((R) / 32);                                                        \
    const uint slab = at / (R) % slabs;                                                            \
    const uint tile = at / (R) / slabs % tiles;                                                    \
    const uint batch = at / (R) / slabs / tiles;                                                   \
    if (batch >= batches) return;                                                                  \
    from += (long)batch * rows * k;                                                                \
    const int row = tile * (R) + group * 32 + lane / 4 * 4;                                        \
    const int p = slab * 8 + lane % 4 * 2;                                                         \
    float x[4][2];                                                                                 \
    const bool is_inside = row + 4 <= rows && p + 2 <= k;                                          \
    if (IS_DEEP && COPY >= 2 && is_inside) {                                                       \
      for (int i = 0; i < 4; ++i) {                                                                \
        const float2 u = *(__global const float2*)(from + AT(row + i, p));                         \
        x[i][0] = u.x, x[i][1] = u.y;                                                              \
      }                                                                                            \
    } else if (!IS_DEEP && COPY == 4 && is_inside) {                                               \
      for (int s = 0; s < 2; ++s) {                                                                \
        const float4 u = *(__global const float4*)(from + AT(row, p + s));                         \
        x[0][s] = u.x, x[1][s] = u.y, x[2][s] = u.z, x[3][s] = u.w;                                \
      }                                                                                            \
    } else {                                                                                       \
      for (int i = 0; i < 4; ++i)                                                                  \
        for (int s = 0; s < 2; ++s)                                                                \
          x[i][s] = row + i < rows && p + s < k ? from[AT(row + i, p + s)] : 0.0f;                 \
    }                                                                                              \
    float big[8];                                                                                  \
    float small[8];                                                                                \
    for (int i = 0; i < 4; ++i)                                                                    \
      for (int s = 0; s < 2; ++s) {                                                                \
        const int place = i / 2 * 4 + (IS_A ? i % 2 + 2 * s : i % 2 * 2 + s);                      \
        SPLIT(big[place], small[place], x[i][s])                                                   \
      }                                                                                            \
    packed += (((long)batch * tiles + tile) * slabs + slab) * (R)*16 + group * 512 + lane * 4;     \
    for (int i = 0; i < 2; ++i) {                                                                  \
      *(__global float4*)(packed + i * 256) =                                                      \
          (float4)(big[4 * i], big[4 * i + 1], big[4 * i + 2], big[4 * i + 3]);                    \
      *(__global float4*)(packed + i * 256 + 128) =                                                \
          (float4)(small[4 * i], small[4 * i + 1], small[4 * i + 2], small[4 * i + 3]);            \
    }                                                                                              \
  }
#define B_AT_COLUMN(col, p) B_AT(p, col)
PACK(pack_a, BM, A_AT, !TRANS_A, COPY_A, 1)
PACK(pack_b, BN, B_AT_COLUMN, TRANS_B, COPY_B, 0)

// k = 0 reads neither a nor b; beta = 0 never reads c0. The grid is (batch, split, tile of c).
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tensor(
    __global const float* restrict a, __global const float* restrict b,
    __global const float* restrict c0, __global float* restrict c, __global float* restrict parts,
    __global const float* restrict packed_a, __global const float* restrict packed_b, int m, int n,
    int k, int row_tiles, int col_tiles, int k_share, float alpha, float beta EPILOGUE_ARGS) {
  __local float tiles[STAGES * STAGE_FLOATS] __attribute__((aligned(128)));
  const int lid = get_local_id(0) & (ITEMS - 1);
  const int tile_count = row_tiles * col_tiles;
  const int tile_at = get_group_id(0) % tile_count;
  const int split = get_group_id(0) / tile_count % SPLITS;
  const int batch = get_group_id(0) / tile_count / SPLITS;
  const int band = tile_at / (RASTER * col_tiles);
  const int in_band = tile_at - band * RASTER * col_tiles;
  const int band_rows = min(RASTER, row_tiles - band * RASTER);
  const int row0 = (band * RASTER + in_band % band_rows) * BM;
  const int col0 = in_band / band_rows * BN;
  a += (long)batch * m * k;
  b += (long)batch * n * k;
  c += (long)batch * m * n;
  c0 += (long)batch * m * n;
  EPILOGUE_FROM((long)batch * m * n)

  const int k_begin = min(split * k_share, k);
  const int k_end = min(k_begin + k_share, k);
  const int steps = (k_end - k_begin + BK - 1) / BK;
#define A_TILE(stage) (tiles + (stage)*STAGE_FLOATS)
#define B_TILE(stage) (A_TILE(stage) + PARTS * BM * BK)
#if PACKED
  const long all_steps = (k + BK - 1) / BK;
  __global const float* a_from =
      packed_a + ((batch * (long)row_tiles + row0 / BM) * all_steps + k_begin / BK) * (PARTS * BM * BK);
  __global const float* b_from =
      packed_b + ((batch * (long)col_tiles + col0 / BN) * all_steps + k_begin / BK) * (PARTS * BN * BK);
  a_from += lid * 4;
  b_from += lid * 4;
  int copied = 0;
#define COPY_STRAIGHT(tile, R, from)                                                            \
  UNROLL_LANES                                                                                  \
  for (int i = 0; i < PARTS * (R)*BK / 4; i += ITEMS)                                           \
    if (PARTS * (R)*BK / 4 % ITEMS == 0 || i + lid < PARTS * (R)*BK / 4)                        \
      copy_async4((tile) + (i + lid) * 4, (from) + i * 4, 4);
#define COPY_TILES(stage)                                                                       \
  if (copied < steps) {                                                                         \
    COPY_STRAIGHT(A_TILE(stage), BM, a_from)                                                    \
    COPY_STRAIGHT(B_TILE(stage), BN, b_from)                                                    \
  }                                                                                             \
  ++copied;                                                                                     \
  a_from += PARTS * BM * BK;                                                                    \
  b_from += PARTS * BN * BK;                                                                    \
  copies_commit();
#else
  __global const float* a_from =
      a + A_AT(row0 + A_KIND(ROW)(lid * COPY_A, BM), k_begin + A_KIND(K)(lid * COPY_A, BM));
  __global const float* b_from =
      b + B_AT(k_begin + B_KIND(K)(lid * COPY_B, BN), col0 + B_KIND(ROW)(lid * COPY_B, BN));
  int a_to = A_KIND(TO)(lid * COPY_A, BM);
  int b_to = B_KIND(TO)(lid * COPY_B, BN);
  int a_room = m - row0 - A_KIND(ROW)(lid * COPY_A, BM);
  int b_room = n - col0 - B_KIND(ROW)(lid * COPY_B, BN);
  int a_k_room = k_end - k_begin - A_KIND(K)(lid * COPY_A, BM);
  int b_k_room = k_end - k_begin - B_KIND(K)(lid * COPY_B, BN);
// The next tiles of a and b; beyond k_end zeros, into a stage that nobody reads.
#define COPY_TILES(stage)                                                                     \
  COPY_TILE(A_TILE(stage), a_to, BM, COPY_A, a_from, a_room, a_k_room, A_KIND(ROW), A_KIND(K), \
            A_KIND(TO), A_ROW_STRIDE, A_K_STRIDE)                                             \
  COPY_TILE(B_TILE(stage), b_to, BN, COPY_B, b_from, b_room, b_k_room, B_KIND(ROW), B_KIND(K), \
            B_KIND(TO), B_COL_STRIDE, B_K_STRIDE)                                             \
  a_from += (long)BK * A_K_STRIDE;                                                            \
  b_from += (long)BK * B_K_STRIDE;                                                            \
  a_k_room -= BK;                                                                             \
  b_k_room -= BK;                                                                             \
  copies_commit();
#endif

  const int warp = WARP_OF(lid);
  const int warp_row = warp / WN * (MT * 16);
  const int warp_col = warp % WN * (NT * 8);
  float sum[MT][NT][WARP_LANES][4];
  UNROLL_LANES
  for (int i = 0; i < MT; ++i)
    UNROLL_LANES
  for (int j = 0; j < NT; ++j)
    UNROLL_LANES
  for (int l = 0; l < WARP_LANES; ++l)
    UNROLL_LANES
  for (int r = 0; r < 4; ++r) sum[i][j][l][r] = 0.0f;

  for (int t = 0; t < STAGES - 1; ++t) {
    COPY_TILES(t)
  }
  int stage = 0;               // tile t's place
  int last_stage = STAGES - 1; // tile t - 1's, which tile t + STAGES - 1 takes
  for (int t = 0; t < steps; ++t) {
    copies_wait(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const float* a_tile = A_TILE(stage);
    __local const float* b_tile = B_TILE(stage);
    UNROLL_LANES
    for (int first = 0; first < BK / 8; first += CHUNK) {
      float big_a[CHUNK][MT][WARP_LANES][4];
      float small_a[CHUNK][MT][WARP_LANES][4];
      UNROLL_LANES
      for (int s = 0; s < CHUNK; ++s)
        UNROLL_LANES
      for (int l = 0; l < WARP_LANES; ++l) {
        LOAD_FRAGMENTS_A(big_a[s], small_a[s], LANE_OF(lid, l), a_tile, first + s)
      }
      UNROLL_LANES
      for (int four = 0; four < NT; four += 4) {
        float big_b[CHUNK][4][WARP_LANES][2];
        float small_b[CHUNK][4][WARP_LANES][2];
        UNROLL_LANES
        for (int s = 0; s < CHUNK; ++s)
          UNROLL_LANES
        for (int l = 0; l < WARP_LANES; ++l) {
          LOAD_FRAGMENTS_B(big_b[s], small_b[s], LANE_OF(lid, l), b_tile, first + s, four)
        }
        // MT chains of products at a time hide the units' latency from each other.
        UNROLL_LANES
        for (int j = 0; j < 4; ++j) {
          float part[MT][WARP_LANES][4];
          UNROLL_LANES
          for (int i = 0; i < MT; ++i)
            UNROLL_LANES
          for (int l = 0; l < WARP_LANES; ++l)
            UNROLL_LANES
          for (int r = 0; r < 4; ++r) part[i][l][r] = 0.0f;
          UNROLL_LANES
          for (int s = 0; s < CHUNK; ++s) {
            UNROLL_LANES
            for (int i = 0; i < MT; ++i) MMA_TF32(part[i], small_a[s][i], big_b[s][j]);
            UNROLL_LANES
            for (int i = 0; i < MT; ++i) MMA_TF32(part[i], big_a[s][i], small_b[s][j]);
          }
          UNROLL_LANES
          for (int s = 0; s < CHUNK; ++s)
            UNROLL_LANES
          for (int i = 0; i < MT; ++i) MMA_TF32(part[i], big_a[s][i], big_b[s][j]);
          UNROLL_LANES
          for (int i = 0; i < MT; ++i)
            UNROLL_LANES
          for (int l = 0; l < WARP_LANES; ++l)
            UNROLL_LANES
          for (int r = 0; r < 4; ++r) sum[i][four + j][l][r] += part[i][l][r];
        }
      }
      // Not before the first products, which would wait for the addresses.
      if (first == 0) {
        COPY_TILES(last_stage)
      }
    }
    last_stage = stage;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }

  // Fours of a lane: row 4g + 2·(i mod 2) + r of 32, columns 8q + 4e … + 3 of 32.
  const bool is_part = SPLITS > 1;
  __global float* to = is_part ? parts + ((long)split * (get_num_groups(0) / tile_count / SPLITS) + batch) * m * n : c;
  float not_finite = 0.0f;  // NaN once a sum is
  UNROLL_LANES
  for (int l = 0; l < WARP_LANES; ++l) {
    const int g = LANE_OF(lid, l) / 4;
    const int q = LANE_OF(lid, l) % 4;
    UNROLL_LANES
    for (int i = 0; i < MT; ++i)
      UNROLL_LANES
    for (int r = 0; r < 2; ++r)
      UNROLL_LANES
    for (int four = 0; four < NT; four += 4)
      UNROLL_LANES
    for (int e = 0; e < 2; ++e) {
      const int row = row0 + warp_row + i / 2 * 32 + 4 * g + i % 2 * 2 + r;
      const int col = col0 + warp_col + 8 * four + 8 * q + 4 * e;
      float value[4];
      UNROLL_LANES
      for (int j = 0; j < 4; ++j) value[j] = sum[i][four + j][l][2 * r + e];
      if (row < m && col < n) {
        const long at = (long)row * n + col;
        UNROLL_LANES
        for (int j = 0; j < 4; ++j) {
          not_finite = fma(value[j], 0.0f, not_finite);
          if (!is_part) value[j] = alpha * (value[j] * DOWNSCALE);
        }
        if (COPY_C == 4) {
          float4 all = (float4)(value[0], value[1], value[2], value[3]);
          if (!is_part && beta != 0.0f) all += beta * *(__global const float4*)(c0 + at);
          *(__global float4*)(to + at) = is_part ? all : EPILOGUE(all, col, at);
        } else {
          UNROLL_LANES
          for (int j = 0; j < 4; ++j) {
            if (col + j >= n) continue;
            if (!is_part && beta != 0.0f) value[j] += beta * c0[at + j];
            to[at + j] = is_part ? value[j] : EPILOGUE_ONE(value[j], col + j, at + j);
          }
        }
      }
    }
  }
  if (is_part || not_finite == 0.0f) return;
  // Rare: the lane's elements once more, those of them that came out infinite or NaN; behind an epilogue,
  // which may hide that, all of them.
  for (int l = 0; l < WARP_LANES; ++l) {
    const int g = LANE_OF(lid, l) / 4;
    const int q = LANE_OF(lid, l) % 4;
    for (int x = 0; x < MT * 2; ++x) {
      for (int y = 0; y < NT * 2; ++y) {
        const int row = row0 + warp_row + x / 4 * 32 + 4 * g + x % 4;
        const int col = col0 + warp_col + y / 8 * 32 + 8 * q + y % 8;
        if (row >= m || col >= n || (!CHAIN && isfinite(c[(long)row * n + col]))) continue;
        const float product = alpha * strict_dot(a, b, m, n, k, row, col);
        const long at = (long)row * n + col;
        const float value = beta != 0.0f ? product + beta * c0[at] : product;
        c[at] = EPILOGUE_ONE(value, col, at);
      }
    }
  }
}

// c = alpha·(sum of the SPLITS parts, in order) + beta·c0, an item per element.
__kernel void add_scaled_parts(__global const float* restrict a, __global const float* restrict b,
                               __global const float* restrict c0, __global float* restrict c,
                               __global const float* restrict parts, int batches, int m, int n,
                               int k, float alpha, float beta EPILOGUE_ARGS) {
  const long at = get_global_id(0);
  const long elements = (long)batches * m * n;
  if (at >= elements) return;
  float sum = parts[at];
  for (int s = 1; s < SPLITS; ++s) sum += parts[s * elements + at];
  sum *= DOWNSCALE;
  if (!isfinite(sum)) {
    const long row = at / n;
    sum = strict_dot(a + row / m * m * k, b + row / m * n * k, m, n, k, row % m, at % n);
  }
  const float product = alpha * sum;
  const float value = beta != 0.0f ? product + beta * c0[at] : product;
  c[at] = EPILOGUE_ONE(value, at % n, at);
}
