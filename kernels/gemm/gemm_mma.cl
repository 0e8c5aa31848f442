// c = op(a)·op(b) of short operands on matrix units (mma.sync): float16 and bfloat16 with float32 sums,
// 8-bit integers with int32 sums. TYPE is a's format; b's is the same, or s8. What follows the product
// is in gemm_output.cl.
//
// A group of WM × WN warps owns BM × BN elements of c, a warp MT fragments of 16 rows × NT of 8 columns.
// Copies of 16 bytes bring tiles t+1 … t+STAGES-1 while tile t is multiplied; one barrier a tile.
// Fragments are loaded by ldmatrix, those of the next step of k between the products of this one, also
// where the next step is another tile's: the products hide the wait for it. Loads and copies are
// apart from each other, since a warp issues in order and many at once fill the queue to local memory.
//
// Tiles in local memory, where ldmatrix reads 8 rows of 16 bytes at a time without bank conflicts:
//   deep (rows along k): rows of 128 bytes of k; piece q of row r is at place q XOR r mod 8.
//   wide (rows along m or n; 16-bit formats only, ldmatrix.trans transposes 16-bit elements): a row per
//   step of k; pieces are swapped within eights by the step mod 8.
// An operand with rows that are no multiple of 16 bytes, or with 8-bit integers across k, is first
// rearranged by `rearrange` of gemm_parts.cl: rows along k, filled up with zeros.
// GATE=1: the left half of a tile's columns are gate's, the right half up's, which end in one lane's hands.
// Sums go through local memory, so that a row of c is written 16 bytes an item.
// Lanes: as in gemm_tensor.cl, with CODE_PATH=0 one work-item plays all 32 of a warp.
// SPLITS > 1: each group takes a share of k and writes its sums to `parts`; add_parts of gemm_parts.cl adds them up.

#define BM (WM * MT * 16)
#define BN (WN * NT * 8)
#if CODE_PATH == 1
#define ITEMS (32 * WM * WN)
#else
#define ITEMS (WM * WN)
#endif
#define STEPS (ROW / 32)  // products of 32 bytes of k
#define PIECES (ROW / 16)
#define STAGE_BYTES ((BM + BN) * ROW)
// Columns of c that a group owns.
#define OWN_COLS (BN / (1 + GATE))
// Sums of a row in local memory: 8 more put neighbouring rows' pairs on other banks.
#define SUM_LD (BN + 8)
#define SUM_BYTES (BM * SUM_LD * 4)
#define LOCAL_BYTES (STAGES * STAGE_BYTES > SUM_BYTES ? STAGES * STAGE_BYTES : SUM_BYTES)

// Where lane `lane` finds its row of the four 8×8 matrices of fragment i of a, or of fragments 2i and 2i + 1
// of b, at step s. A fragment of a: rows, then k; of b: k, then columns.
#define DEEP_PLACE(row, piece) ((row) * ROW + ((piece) ^ ((row) & 7)) * 16)
#define WIDE_PLACE(step, piece, R) ((step) * (R) * 2 + ((piece) ^ ((step) & 7)) * 16)
#if A_WIDE
#define A_PLACE(lane, i, s) \
  WIDE_PLACE(16 * (s) + (lane) % 8 + (lane) / 16 * 8, warp_row / 8 + 2 * (i) + (lane) / 8 % 2, BM)
#else
#define A_PLACE(lane, i, s) DEEP_PLACE(warp_row + 16 * (i) + (lane) % 16, 2 * (s) + (lane) / 16)
#endif
#if B_WIDE
#define B_PLACE(lane, i, s) \
  WIDE_PLACE(16 * (s) + (lane) % 16, warp_col / 8 + 2 * (i) + (lane) / 16, BN)
#else
#define B_PLACE(lane, i, s) \
  DEEP_PLACE(warp_col + 16 * (i) + (lane) % 8 + (lane) / 16 * 8, 2 * (s) + (lane) / 8 % 2)
#endif

// An item's copy number i of a tile of R rows, deep or wide: zeros where rows from r_room or bytes of k from
// k_room on do not exist, both counted from the tile's first. Rows from HALF on are `skip` farther on.
#define COPIES(R) (((R)*PIECES + ITEMS - 1) / ITEMS)
#define COPY_DEEP(i, tile, R, from, ld, r_room, k_room, HALF, skip)                             \
  {                                                                                             \
    const int at = (i)*ITEMS + lid;                                                             \
    const int row = at / PIECES;                                                                \
    const int piece = at % PIECES;                                                              \
    const bool is_far = (HALF) < (R) && row >= (HALF);                                          \
    const bool is_inside = row - (is_far ? (HALF) : 0) < (r_room) && piece * 16 < (k_room);     \
    if ((R)*PIECES % ITEMS == 0 || row < (R))                                                   \
      copy_async4((__local float*)((tile) + DEEP_PLACE(row, piece)),                            \
                  (__global const float*)((from) + (long)(row + (is_far ? (skip) : 0)) * (ld) + \
                                          piece * 16),                                          \
                  is_inside ? 4 : 0);                                                           \
  }
#define COPY_WIDE(i, tile, R, from, ld, r_room, k_room, HALF, skip)                             \
  {                                                                                             \
    const int at = (i)*ITEMS + lid;                                                             \
    const int step = at / ((R) / 8);                                                            \
    const int piece = at % ((R) / 8);                                                           \
    const bool is_far = (HALF) < (R) && piece * 8 >= (HALF);                                    \
    const bool is_inside =                                                                      \
        piece * 8 - (is_far ? (HALF) : 0) < (r_room) && step * BYTES < (k_room);                \
    if ((R)*PIECES % ITEMS == 0 || step < BK)                                                   \
      copy_async4((__local float*)((tile) + WIDE_PLACE(step, piece, R)),                        \
                  (__global const float*)((from) + (long)step * (ld) +                          \
                                          (piece * 8 + (is_far ? (skip) : 0)) * 2),             \
                  is_inside ? 4 : 0);                                                           \
  }
#if A_WIDE
#define COPY_A COPY_WIDE
#define A_STRAIGHT TRANSPOSED
#define A_AT(row, step) ((long)(step) * a_ld + (row) * BYTES)
#else
#define COPY_A COPY_DEEP
#define A_STRAIGHT STRAIGHT
#define A_AT(row, step) ((long)(row) * a_ld + (step) * BYTES)
#endif
#if B_WIDE
#define COPY_B COPY_WIDE
#define B_STRAIGHT TRANSPOSED
#define B_AT(col, step) ((long)(step) * b_ld + (col) * BYTES)
#else
#define COPY_B COPY_DEEP
#define B_STRAIGHT STRAIGHT
#define B_AT(col, step) ((long)(col) * b_ld + (step) * BYTES)
#endif

#define LOAD_A(place, i, s) LOAD_MATRICES(A_STRAIGHT, x[place][i], a_tile, A_PLACE, i, s)
#define LOAD_B(place, i, s) LOAD_MATRICES(B_STRAIGHT, y[place][i], b_tile, B_PLACE, i, s)

// a_ld, b_ld: bytes of a row; a_batch, b_batch: of a matrix. k in elements; where an operand was rearranged,
// filled up. k = 0 reads neither a nor b. n: columns of c.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_mma(
    __global const uchar* restrict a, __global const uchar* restrict b,
    __global number* restrict parts, int m, int n, int k, int a_ld, int b_ld, long a_batch,
    long b_batch, int row_tiles, int col_tiles, int k_share OUTPUT_ARGS) {
  __local uchar tiles[LOCAL_BYTES] __attribute__((aligned(128)));
  const int lid = get_local_id(0) & (ITEMS - 1);
  const int tile_count = row_tiles * col_tiles;
  const int tile_at = get_group_id(0) % tile_count;
  const int split = get_group_id(0) / tile_count % SPLITS;
  const int batch = get_group_id(0) / tile_count / SPLITS;
  // Groups walk c in bands of RASTER row tiles, which share tiles of a and b in the L2 cache.
  const int band = tile_at / (RASTER * col_tiles);
  const int in_band = tile_at - band * RASTER * col_tiles;
  const int band_rows = min(RASTER, row_tiles - band * RASTER);
  const int row0 = (band * RASTER + in_band % band_rows) * BM;
  const int col0 = in_band / band_rows * OWN_COLS;
  const int k_begin = min(split * k_share, k);
  const int k_end = min(k_begin + k_share, k);
  const int steps = (k_end - k_begin + BK - 1) / BK;
  a += batch * a_batch + A_AT(row0, k_begin);
  b += batch * b_batch + B_AT(col0, k_begin);
  int k_room = (k_end - k_begin) * BYTES;
#define A_TILE(stage) (tiles + (stage)*STAGE_BYTES)
#define B_TILE(stage) (A_TILE(stage) + BM * ROW)
// An item's copies of the next tiles of a and b, numbers [from, to) of them; beyond k_end zeros, into a stage
// that nobody reads.
#define ALL_COPIES (COPIES(BM) + COPIES(BN))
#define COPY_SOME(stage, from, to)                                                              \
  UNROLL_LANES                                                                                  \
  for (int copy = 0; copy < ALL_COPIES; ++copy) {                                               \
    if (copy < (from) || copy >= (to)) continue;                                                \
    if (copy < COPIES(BM)) {                                                                    \
      COPY_A(copy, A_TILE(stage), BM, a, a_ld_now, m - row0, k_room, BM, 0)                            \
    } else {                                                                                    \
      COPY_B(copy - COPIES(BM), B_TILE(stage), BN, b, b_ld_now, n - col0, k_room, OWN_COLS,            \
             n - OWN_COLS)                                                                      \
    }                                                                                           \
  }
#define END_COPIES                                                                              \
  a += A_AT(0, BK);                                                                             \
  b += B_AT(0, BK);                                                                             \
  k_room -= ROW;                                                                                \
  copies_commit();
// Where copies come from is computed again for each tile: kept from tile to tile it takes the registers
// of fragments.
#if CODE_PATH == 1
#define ANEW(value, from) asm volatile("mov.b32 %0, %1;" : "=r"(value) : "r"(from))
#else
#define ANEW(value, from) value = from
#endif
  int a_ld_now = a_ld;
  int b_ld_now = b_ld;

  const int warp = WARP_OF(lid);
  const int lane = LANE_OF(lid, 0);
  const int warp_row = warp / WN * (MT * 16);
  const int warp_col = warp % WN * (NT * 8);
  number sum[MT][NT][WARP_LANES][4];
  UNROLL_LANES
  for (int i = 0; i < MT; ++i)
    UNROLL_LANES
  for (int j = 0; j < NT; ++j)
    UNROLL_LANES
  for (int l = 0; l < WARP_LANES; ++l)
    UNROLL_LANES
  for (int r = 0; r < 4; ++r) sum[i][j][l][r] = 0;

  UNROLL_LANES
  for (int t = 0; t < STAGES - 1; ++t) {
    COPY_SOME(t, 0, ALL_COPIES)
    END_COPIES
  }
  copies_wait(STAGES - 2);
  barrier(CLK_LOCAL_MEM_FENCE);
  int stage = 0;                // tile t's place
  int last_stage = STAGES - 1;  // tile t - 1's, which tile t + STAGES - 1 takes
  uint x[2][MT][WARP_LANES][4];
  uint y[2][NT / 2][WARP_LANES][4];
  __local const uchar* a_tile = A_TILE(0);
  __local const uchar* b_tile = B_TILE(0);
  UNROLL_LANES
  for (int i = 0; i < MT; ++i) LOAD_A(0, i, 0);
  UNROLL_LANES
  for (int j = 0; j < NT / 2; ++j) LOAD_B(0, j, 0);
  for (int t = 0; t < steps; ++t) {
    ANEW(a_ld_now, a_ld);
    ANEW(b_ld_now, b_ld);
    UNROLL_LANES
    for (int s = 0; s < STEPS; ++s) {
      if (s + 1 == STEPS) {
        END_COPIES
        // Everybody has the fragments of this tile, and the next one is there.
        copies_wait(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        last_stage = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        a_tile = A_TILE(stage);
        b_tile = B_TILE(stage);
      }
      UNROLL_LANES
      for (int i = 0; i < MT; ++i) {
        LOAD_A((s + 1) % 2, i, (s + 1) % STEPS);
        UNROLL_LANES
        for (int j = 0; j < NT / 2; ++j) MULTIPLY(sum[i][j], x[s % 2][i], y[s % 2][j / 2], j % 2);
        UNROLL_LANES
        for (int j = i * (NT / 2) / MT; j < (i + 1) * (NT / 2) / MT; ++j)
          LOAD_B((s + 1) % 2, j, (s + 1) % STEPS);
        if (s + 1 < STEPS) {
          COPY_SOME(last_stage, (s * MT + i) * ALL_COPIES / ((STEPS - 1) * MT),
                    (s * MT + i + 1) * ALL_COPIES / ((STEPS - 1) * MT))
        }
        UNROLL_LANES
        for (int j = NT / 2; j < NT; ++j)
          MULTIPLY(sum[i][j], x[s % 2][i], y[s % 2][j / 2], j % 2);
      }
    }
  }

  copies_wait(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  __local number* sums = (__local number*)tiles;
  UNROLL_LANES
  for (int l = 0; l < WARP_LANES; ++l) {
    const int g = LANE_OF(lid, l) / 4;
    const int q = LANE_OF(lid, l) % 4;
    UNROLL_LANES
    for (int i = 0; i < MT; ++i)
      UNROLL_LANES
    for (int j = 0; j < NT; ++j)
      UNROLL_LANES
    for (int r = 0; r < 4; ++r)
      sums[(warp_row + 16 * i + g + r / 2 * 8) * SUM_LD + warp_col + 8 * j + 2 * q + r % 2] =
          sum[i][j][l][r];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const long elements = (long)m * n;
#if SPLITS > 1
  const int batches = get_num_groups(0) / tile_count / SPLITS;
  parts += ((long)split * batches + batch) * elements * (1 + GATE);
#else
  c += batch * elements;
  c0 += batch * elements;
  residual += batch * elements;
#endif
  for (int at = lid * 4; at < BM * OWN_COLS; at += ITEMS * 4) {
    const int row = at / OWN_COLS;
    const int col = at % OWN_COLS;
    const int count = row0 + row < m ? n - col0 - col : 0;
    const number4 v = *(__local const number4*)(sums + row * SUM_LD + col);
    const long to = (long)(row0 + row) * n + col0 + col;
#if SPLITS > 1
    for (int product = 0; product <= GATE; ++product)
      put_part(parts + product * elements + to,
               *(__local const number4*)(sums + row * SUM_LD + col + product * OWN_COLS), count);
#elif GATE
    put_vector(gated(v, *(__local const number4*)(sums + row * SUM_LD + col + OWN_COLS)), to,
               col0 + col, count, OUTPUT);
#else
    put_vector(v, to, col0 + col, count, OUTPUT);
#endif
  }
}
