// c = op(a)·op(b) on matrix units (mma.sync): float16 and bfloat16 with float32 sums, 8-bit integers with
// int32 sums, and float32 by splitting (math 3xtf32). TYPE is a's format; b's is the same, or s8. What
// follows the product is in gemm_output.cl; fragments are in gemm_fragments.cl.
//
// A group of WM × WN warps owns BM × BN elements of c, a warp MT fragments of 16 rows × NT of 8 columns.
// A tile of k takes 128 bytes of every row. Copies of 16 bytes bring tiles t+1 … t+STAGES-1 while tile t is
// multiplied; one barrier a tile. Loads and copies are apart from each other, since a warp issues in
// order and many at once fill the queue to local memory.
//
// An operand with rows that are no multiple of 16 bytes, or with 8-bit integers across k, is first
// rearranged by `rearrange` of gemm_parts.cl: rows along k, filled up with zeros.
// GATE=1: the left half of a tile's columns are gate's, the right half up's, which end in one lane's hands.
// Sums go through local memory, so that a row of c is written 16 bytes an item.
// Lanes: with CODE_PATH=0 one work-item plays all 32 of a warp (code_paths.cl), which checks the very
// layout of fragments.
// SPLITS > 1: each group takes a share of k and writes its sums to `parts`; add_parts adds them up.
//
// 3xtf32. Matrix units take tf32, 11 significant bits. x = big + small, both tf32, and
//   a·b = small_a·big_b + big_a·small_b + big_a·big_b      (small_a·small_b is below 2^-22·|a·b|).
// The idea: Markidis et al. 2018 and CUTLASS example 27; what its accuracy hangs on: Ootomo & Yokota,
// arXiv 2203.03341. Three things are done that a plain splitting gets wrong:
//   Sums. The units cut their sums off instead of rounding, always towards zero: a model of them that
//   keeps 25 bits is 990 · 2^-24 off after 4096 products of one sign. So products of 16 steps of k are
//   summed in a fragment that starts at zero, and fragments by float32 additions, which round.
//   Tiny values. Below 2^-113 the small part has no bits left in tf32, which has float32's exponents.
//   Both operands are therefore scaled by 2^13, exactly: every float keeps 22 bits, and subnormal
//   ones all they have.
//   Huge values, infinity, NaN. Scaled values from 2^115 on, sums from 2^102 on, and infinities
//   (their small part is inf - inf) end as infinity or NaN. A sum that is not finite is computed again
//   in plain float32 (`finished` of gemm_parts.cl), so that it is what strict arithmetic makes it.
// Operands are split when fragments are loaded, 4 operations an element, or with PACKED=1 once, when they
// are rearranged: large products repay the 20 bytes an element that this moves.

// A step of the loop: 32 bytes of k, or 16 steps of k of 3xtf32, which takes its fragments as it goes. Others
// have them loaded during the step before, also across tiles: the products hide the wait.
#define AHEAD (TYPE != F32)
#define STEPS (AHEAD ? ROW / 32 : BK / 16)
#define STAGE_BYTES ((BM + BN) * ROW)
// Sums of a row in local memory: 8 more put neighbouring rows' pairs on other banks.
#define SUM_LD (BN + 8)
#define SUM_BYTES (BM * SUM_LD * 4)
#define LOCAL_BYTES (STAGES * STAGE_BYTES > SUM_BYTES ? STAGES * STAGE_BYTES : SUM_BYTES)

// Where the next tile's copies come from: its first bytes, bytes of a row, rows and bytes of k that exist;
// columns from OWN_COLS on are b_skip farther on.
typedef struct {
  __global const uchar *a, *b;
  int a_ld, b_ld, a_rows, b_rows, b_skip, k_room;
} Source;

// An item's copy number i of a tile of R rows: zeros where rows from `rows` or bytes of k from k_room on do
// not exist. Rows from HALF on are `skip` farther on. A copy takes 16 bytes: rows at a step of k (WIDE), or
// steps of a row.
#define COPIES(R) (((R)*PIECES + ITEMS - 1) / ITEMS)
#define ALL_COPIES (COPIES(BM) + COPIES(BN))
#define COPY(i, tile, R, WIDE, from, ld, rows, k_room, HALF, skip)                              \
  {                                                                                             \
    const int of_line = (WIDE) ? (R)*BYTES / 16 : PIECES;                                       \
    const int at = (i)*ITEMS + LOCAL_ID;                                                        \
    const int line = at / of_line;                                                              \
    const int piece = at % of_line;                                                             \
    const int row = (WIDE) ? piece * (16 / BYTES) : line;                                       \
    const int k_byte = (WIDE) ? line * BYTES : piece * 16;                                      \
    const bool is_far = (HALF) < (R) && row >= (HALF);                                          \
    const bool is_inside = row - (is_far ? (HALF) : 0) < (rows) && k_byte < (k_room);           \
    const int own_row = row + (is_far ? (skip) : 0);                                            \
    if ((R)*PIECES % ITEMS == 0 || line < ((WIDE) ? BK : (R)))                                  \
      copy_async4((__local float*)((tile) + ((WIDE) ? WIDE_PLACE(line, piece, R)                \
                                                    : DEEP_PLACE(line, piece))),                \
                  (__global const float*)((from) + (long)((WIDE) ? line : own_row) * (ld) +     \
                                          ((WIDE) ? own_row * BYTES : k_byte)),                 \
                  is_inside ? 4 : 0);                                                           \
  }
// Where row `row` and step `step` of an operand are. Tiles of packed ones, of R rows, lie one after the other
// (gemm_work.cl).
#define PLACE_OF(row, step, R, WIDE, ld)                                                        \
  (PACKED   ? ((long)(row) / (R) * (ld) + (step) / BK * ROW) * (R)                              \
   : (WIDE) ? (long)(step) * (ld) + (row) * BYTES                                               \
            : (long)(row) * (ld) + (step) * BYTES)
#define A_AT(row, step) PLACE_OF(row, step, BM, A_WIDE, a_ld)
#define B_AT(col, step) PLACE_OF(col, step, BN, B_WIDE, b_ld)
// Numbers [from, to) of an item's copies of the next tile; beyond the share of k zeros, into a stage that
// nobody reads.
INLINED void copy_some(__local uchar* stage, Source next, int from, int to) {
  EVERY(copy, ALL_COPIES) {
    if (copy < from || copy >= to) continue;
    if (copy < COPIES(BM)) {
      COPY(copy, stage, BM, A_WIDE, next.a, PACKED ? ROW : next.a_ld, PACKED ? BM : next.a_rows,
           next.k_room, BM, 0)
    } else {
      COPY(copy - COPIES(BM), stage + A_BYTES, BN, B_WIDE, next.b, PACKED ? ROW : next.b_ld,
           PACKED ? BN : next.b_rows, next.k_room, OWN_COLS, next.b_skip)
    }
  }
}

// sum += step s of a tile. `now` is the tile, `next` the tile of the step after; copies go to `last`.
#if AHEAD
INLINED void multiply_step(number (*sum)[NT][WARP_LANES][4], uint (*x)[MT][WARP_LANES][4],
                           uint (*y)[NT / 2][WARP_LANES][4], int s, __local const uchar* tile,
                           __local uchar* last, Source next) {
  EVERY(i, MT) {
    load_a(x[(s + 1) % 2][i], tile, i, (s + 1) % STEPS);
    EVERY(j, NT / 2) MULTIPLY(sum[i][j], x[s % 2][i], y[s % 2][j / 2], j % 2);
    UNROLL_LANES
    for (int j = i * (NT / 2) / MT; j < (i + 1) * (NT / 2) / MT; ++j)
      load_b(y[(s + 1) % 2][j], tile, j, (s + 1) % STEPS);
    if (s + 1 < STEPS) {
      copy_some(last, next, (s * MT + i) * ALL_COPIES / ((STEPS - 1) * MT),
                (s * MT + i + 1) * ALL_COPIES / ((STEPS - 1) * MT));
    }
    UNROLL_LANES
    for (int j = NT / 2; j < NT; ++j) MULTIPLY(sum[i][j], x[s % 2][i], y[s % 2][j / 2], j % 2);
  }
}
#else
// The products of four columns of fragments, from zero, then added to the sums. MT chains of products at a
// time hide the units' latency from each other.
INLINED void multiply_four(number (*sum)[NT][WARP_LANES][4], int first,
                           float (*big_a)[MT][WARP_LANES][4], float (*small_a)[MT][WARP_LANES][4],
                           float (*big_b)[4][WARP_LANES][2], float (*small_b)[4][WARP_LANES][2]) {
  EVERY(j, 4) {
    float part[MT][WARP_LANES][4];
    EVERY(i, MT) EACH_LANE(l) EVERY(r, 4) part[i][l][r] = 0.0f;
    EVERY(s, 2) {
      EVERY(i, MT) MMA_TF32(part[i], small_a[s][i], big_b[s][j]);
      EVERY(i, MT) MMA_TF32(part[i], big_a[s][i], small_b[s][j]);
    }
    EVERY(s, 2) EVERY(i, MT) MMA_TF32(part[i], big_a[s][i], big_b[s][j]);
    EVERY(i, MT) EACH_LANE(l) EVERY(r, 4) sum[i][first + j][l][r] += part[i][l][r];
  }
}
INLINED void multiply_step(number (*sum)[NT][WARP_LANES][4], int step, __local const uchar* tile,
                           __local uchar* last, Source next) {
  float big_a[2][MT][WARP_LANES][4];
  float small_a[2][MT][WARP_LANES][4];
  EVERY(s, 2) EVERY(i, MT) load_parts_a(big_a[s][i], small_a[s][i], tile, i, 2 * step + s);
  UNROLL_LANES
  for (int first = 0; first < NT; first += 4) {
    float big_b[2][4][WARP_LANES][2];
    float small_b[2][4][WARP_LANES][2];
    EVERY(s, 2) EVERY(pair, 2)
      load_parts_b(big_b[s] + 2 * pair, small_b[s] + 2 * pair, tile, first / 2 + pair, 2 * step + s);
    multiply_four(sum, first, big_a, small_a, big_b, small_b);
  }
  // Not before the first products, which would wait for the addresses.
  if (step == 0) copy_some(last, next, 0, ALL_COPIES);
}
#endif

// A group's sums through local memory to c, or with SPLITS to `parts`, which are the group's own.
INLINED void store_tile(number (*sum)[NT][WARP_LANES][4], __local number* sums,
                        __global number* parts, Work work, int m, int n,
                        int k STRICT_PARAMS OUTPUT_PARAMS) {
  EACH_LANE(l) {
    const int row = WARP_ROW + LANE_OF(LOCAL_ID, l) / 4;
    const int col = WARP_COL + LANE_OF(LOCAL_ID, l) % 4 * 2;
    EVERY(i, MT) EVERY(j, NT) EVERY(r, 4)
      sums[(row + 16 * i + r / 2 * 8) * SUM_LD + col + 8 * j + r % 2] = sum[i][j][l][r];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const long elements = (long)m * n;
  for (int at = LOCAL_ID * 4; at < BM * OWN_COLS; at += ITEMS * 4) {
    const int row = work.row + at / OWN_COLS;
    const int col = work.col + at % OWN_COLS;
    if (row >= m || col >= n) continue;
    __local const number* from = sums + at / OWN_COLS * SUM_LD + at % OWN_COLS;
    const long to = (long)row * n + col;
    number4 v = *(__local const number4*)from;
#if SPLITS > 1
    put_part(parts + to, v, n - col);
    if (GATE) put_part(parts + elements + to, *(__local const number4*)(from + OWN_COLS), n - col);
#else
#if GATE
    v = gated(v, *(__local const number4*)(from + OWN_COLS));
#elif TYPE == F32
    if (isfinite(v.x + v.y + v.z + v.w)) {
      v *= DOWNSCALE;
    } else {
      number one[4] = {v.x, v.y, v.z, v.w};
      for (int j = 0; j < 4 && col + j < n; ++j)
        one[j] = finished(one[j], work.batch, row, col + j, m, n, k STRICT);
      v = (number4)(one[0], one[1], one[2], one[3]);
    }
#endif
    put_vector(v, work.batch * elements + to, col, n - col, OUTPUT);
#endif
  }
}

// a and b are rearranged where needed; a_ld, b_ld: bytes of a row; a_batch, b_batch: of a matrix. k = 0
// reads neither. n: columns of c.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tensor(
    __global const uchar* restrict a, __global const uchar* restrict b,
    __global number* restrict parts, int m, int n, int k, int a_ld, int b_ld, long a_batch,
    long b_batch, int row_tiles, int col_tiles, int k_share STRICT_ARGS OUTPUT_ARGS) {
  __local uchar tiles[LOCAL_BYTES] __attribute__((aligned(128)));
  const Work work = work_of(get_group_id(0), row_tiles, col_tiles, SPLITS, BM, OWN_COLS);
  const int all_k = PACKED ? (k + 15) / 16 * 16 : k;
  const int k_begin = min(work.split * k_share, all_k);
  const int k_end = min(k_begin + k_share, all_k);
  const int steps = (k_end - k_begin + BK - 1) / BK;
  Source next = {a + work.batch * a_batch + A_AT(work.row, k_begin),
                 b + work.batch * b_batch + B_AT(work.col, k_begin),
                 a_ld, b_ld, m - work.row, n - work.col, n - OWN_COLS, (k_end - k_begin) * K_BYTES};
#define TILE(stage) (tiles + (stage)*STAGE_BYTES)
#define END_COPIES           \
  next.a += A_AT(0, BK);     \
  next.b += B_AT(0, BK);     \
  next.k_room -= ROW;        \
  copies_commit();
// Where copies come from is computed again for each tile: kept from tile to tile it takes the registers
// of fragments.
#if CODE_PATH == 1
#define ANEW(value, from) asm volatile("mov.b32 %0, %1;" : "=r"(value) : "r"(from))
#else
#define ANEW(value, from) value = from
#endif

  number sum[MT][NT][WARP_LANES][4];
  EVERY(i, MT) EVERY(j, NT) EACH_LANE(l) EVERY(r, 4) sum[i][j][l][r] = 0;

  EVERY(t, STAGES - 1) {
    copy_some(TILE(t), next, 0, ALL_COPIES);
    END_COPIES
  }
  copies_wait(STAGES - 2);
  barrier(CLK_LOCAL_MEM_FENCE);
  int stage = 0;                // tile t's place
  int last_stage = STAGES - 1;  // tile t - 1's, which tile t + STAGES - 1 takes
#if AHEAD
  uint x[2][MT][WARP_LANES][4];
  uint y[2][NT / 2][WARP_LANES][4];
  EVERY(i, MT) load_a(x[0][i], TILE(0), i, 0);
  EVERY(j, NT / 2) load_b(y[0][j], TILE(0), j, 0);
#define FRAGMENTS x, y,
#else
#define FRAGMENTS
#endif
  for (int t = 0; t < steps; ++t) {
    ANEW(next.a_ld, a_ld);
    ANEW(next.b_ld, b_ld);
    EVERY(s, STEPS) {
      if (!AHEAD) multiply_step(sum, FRAGMENTS s, TILE(stage), TILE(last_stage), next);
      if (s + 1 == STEPS) {
        END_COPIES
        // Everybody has the fragments of this tile, and the next one is there.
        copies_wait(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        last_stage = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
      }
      if (AHEAD) multiply_step(sum, FRAGMENTS s, TILE(stage), TILE(last_stage), next);
    }
  }

  copies_wait(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  const long part = (long)work.split * (get_num_groups(0) / (row_tiles * col_tiles * SPLITS)) + work.batch;
  store_tile(sum, (__local number*)tiles, parts + part * m * n * (1 + GATE), work, m, n, k STRICT, OUTPUT);
}
