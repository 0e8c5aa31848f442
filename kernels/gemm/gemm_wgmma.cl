// c = op(a)·op(b) of short operands on Hopper's matrix units: wgmma, fed by the copy engine. float16 and
// bfloat16 with float32 sums, 8-bit integers with int32 sums. TYPE is a's format; b's is the same, or s8.
// What follows the product is in gemm_output.cl; docs/wgmma.md explains everything below step by step.
//
// NVIDIA's OpenCL compiler refuses wgmma. Instructions behind SM_90A are comments for it; opencl_ptx.cpp
// uncovers them in the PTX that it returns, and the driver assembles that.
//
// A group has CONSUMERS × 128 work-items that multiply and one warp that starts copies. It computes tiles
// of BM × BN elements of c, one after the other: while a tile is stored, the copies for the next one
// arrive. A tile of k takes 128 bytes of every row, and goes through a ring of STAGES places.
//
// Tiles in local memory, as the copy engine writes and wgmma reads them (both swizzle 128-byte rows):
//   rows along k (WIDE=0): a row of 128 bytes of k per row of op(a) or column of op(b).
//   rows across k (WIDE=1; 16-bit formats only): blocks of 64 rows of op(a), a row of 128 bytes per k.
// STAGED=1: results go through local memory too, from where the copy engine takes them to c while the next
// tile is multiplied (rows of c must be a multiple of 16 bytes). Otherwise items store them.
// GATE=1: the left half of a tile's columns are gate's, the right half up's; both are in one item's sums.
// An operand laid out otherwise, or with rows that are no multiple of 16 bytes, goes through `rearrange` of
// gemm_parts.cl first. SPLITS > 1: each group takes a share of k and writes its sums to `parts`.

#define CONSUMERS (WM / 4)  // warpgroups: four warps multiply together
#define STEPS (ROW / 32)  // a wgmma takes 32 bytes of k
#define ITEMS (CONSUMERS * 128 + 32)
#define BLOCK (64 * ROW)  // bytes of 64 rows
#define STAGE_BYTES ((BM + BN) * ROW)

// A box of results, 64 rows of 32 columns, and how many of them a consumer has, and has room for.
#define C_BYTES ((int)sizeof(stored))
#define BOX_COLS 32
#define BOX_BYTES (64 * BOX_COLS * C_BYTES)
#define ROW_BOXES (OWN_COLS / BOX_COLS)
#define ALL_BOXES (MT * ROW_BOXES)
#define MOST_BOXES (32768 / BOX_BYTES)
#define ROUND_BOXES (ALL_BOXES < MOST_BOXES ? ALL_BOXES : MOST_BOXES)
#define RESULT_BYTES (STAGED ? CONSUMERS * ROUND_BOXES * BOX_BYTES : 0)
// Rows of a box are swizzled within 64 or 128 bytes, so that items write without bank conflicts.
#define BOX_PLACE(at) ((at) ^ ((at) >> 3 & (C_BYTES == 2 ? 0x30 : 0x70)))

// A stage is filled by so many copies.
#define A_PIECES (A_WIDE ? BM / 64 : 1)
#define B_PIECES (B_WIDE ? BN / 64 : 1 + GATE)

// From one wgmma's 32 bytes of k to the next one's.
#define A_STEP ((A_WIDE ? 16 * ROW : 32) / 16)
#define B_STEP ((B_WIDE ? 16 * ROW : 32) / 16)

// One work-item starts all copies of a group.
INLINED void produce(Ring* ring, ulong maps, int n, int k, int k_share, int row_tiles, int col_tiles,
                     int count) {
  acquire_map(maps);
  acquire_map(maps + 128);
  ring->parity = 1;
  for (int number = get_group_id(0); number < count; number += get_num_groups(0)) {
    const Work work = work_of(number, row_tiles, col_tiles, SPLITS, BM, OWN_COLS);
    const int k_begin = work.split * k_share;
    const int k_end = min(k_begin + k_share, k);
    for (int at = k_begin; at < k_end; at += BK) {
      wait_empty(ring, STAGE_BYTES);
      const uint now_full = full_of(ring);
      const uint to = tile_of(ring);
      EACH(i, A_PIECES) {
        const int row = work.row + 64 * i;
        copy_box(to + i * BLOCK, maps, A_WIDE ? row : at, A_WIDE ? at : row, work.batch, now_full);
      }
      EACH(i, B_PIECES) {
        const int within = i * (BN / B_PIECES);
        const int col = work.col + (within < OWN_COLS ? within : within - OWN_COLS + n);
        copy_box(to + (BM + within) * ROW, maps + 128, B_WIDE ? col : at, B_WIDE ? at : col,
                 work.batch, now_full);
      }
      advance(ring);
    }
  }
}

// Four neighbours of a row of two fragments, from the pairs that two lanes hold: even lanes get those of
// the left fragment.
#define LANE_XOR(x) CAT(as_, NUMBER)(lane_xor(as_float(x), 1, 0))
INLINED number4 four_of(const number* left, const number* right, int is_odd) {
  const number x = LANE_XOR(is_odd ? left[0] : right[0]);
  const number y = LANE_XOR(is_odd ? left[1] : right[1]);
  return is_odd ? (number4)(x, y, right[0], right[1]) : (number4)(left[0], left[1], x, y);
}
// The same of fragments `left` and the next one, half h (8 rows), with what gate=1 makes of it.
INLINED number4 results_of(const number* sums, int left, int h, int is_odd) {
  sums += 4 * left + 2 * h;
  const number4 v = four_of(sums, sums + 4, is_odd);
#if GATE && SPLITS == 1
  return gated(v, four_of(sums + 2 * NT, sums + 2 * NT + 4, is_odd));
#else
  return v;
#endif
}

// A consumer's sums, item by item: `row` and `col` are the item's first.
INLINED void store_items(number (*sum)[NT * 4], __global number* parts, Work work, int row,
                         int col, int is_odd, int m, int n, int batches OUTPUT_PARAMS) {
  const long elements = (long)m * n;
  EACH(i, MT) EACH(h, 2) EACH(pair, OWN_COLS / 16) {
    const int own_row = row + i * 64 + h * 8;
    const int own_col = col + pair * 16 + is_odd * 8;
    const int many = own_row < m ? n - own_col : 0;
    const long to = (long)own_row * n + own_col;
    const number4 v = results_of(sum[i], 2 * pair, h, is_odd);
#if SPLITS > 1
    __global number* own =
        parts + ((long)work.split * batches + work.batch) * elements * (1 + GATE) + to;
    put_part(own, v, many);
#if GATE
    put_part(own + elements, results_of(sum[i], 2 * pair + NT / 2, h, is_odd), many);
#endif
#else
    put_vector(v, work.batch * elements + to, own_col, many, OUTPUT);
#endif
  }
}

#if STAGED
typedef CAT(ELEMENT(C_TYPE), 2) stored2;
// What gemm_output.cl does with four neighbours, of two pairs in the columns col and col + 1: the upper
// one is element `upper` of c, the lower one `lower`, as far as they exist.
INLINED storedv pairs_at(__global const stored* from, long upper, long lower, int has_upper,
                         int has_lower) {
  const stored2 none = 0;
  return (storedv)(has_upper ? *(__global const stored2*)(from + upper) : none,
                   has_lower ? *(__global const stored2*)(from + lower) : none);
}
INLINED storedv pair_results(number4 sum, long upper, long lower, int col, int has_upper,
                             int has_lower OUTPUT_PARAMS) {
#if !INTEGERS
  sum *= alpha;
  if (beta != 0.0f) sum += beta * numberv_of(pairs_at(c0, upper, lower, has_upper, has_lower));
#if CHAIN
  const float2 own_bias =
      HAS_BIAS && (has_upper || has_lower) ? *(__global const float2*)(bias + col) : (float2)(0.0f);
  sum = epilogue(sum, (float4)(own_bias, own_bias),
                 HAS_ADD ? numberv_of(pairs_at(residual, upper, lower, has_upper, has_lower))
                         : (float4)(0.0f));
#endif
#endif
  return storedv_of(sum);
}

// A consumer's sums by boxes, in which an item has a pair in each of the rows `row` and row + 8 per fragment.
// `staging`: the consumer's; `col`: the item's in a fragment.
INLINED void store_boxes(number (*sum)[NT * 4], __local uchar* staging, ulong map, Work work,
                         int consumer, int row, int col, int m, int n OUTPUT_PARAMS) {
  const int is_first = get_local_id(0) % 128 == 0;
  const int first_row = work.row + consumer * MT * 64;
#pragma unroll
  for (int from = 0; from < ALL_BOXES; from += ROUND_BOXES) {
    // The copies of the round before have been read.
    if (is_first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    consumer_barrier(consumer);
#pragma unroll
    for (int box = from; box < min(from + ROUND_BOXES, ALL_BOXES); ++box) {
      const int i = box / ROW_BOXES;
      const int at = box % ROW_BOXES * BOX_COLS;
      const int own_row = first_row + i * 64 + row;
      __local uchar* to = staging + (box - from) * BOX_BYTES;
      EACH(j, BOX_COLS / 8) {
        const number* v = sum[i] + (at / 8 + j) * 4;
        number4 four = (number4)(v[0], v[1], v[2], v[3]);
#if GATE
        const number* up = v + NT * 2;
        four = gated(four, (number4)(up[0], up[1], up[2], up[3]));
#endif
        const int own_col = work.col + at + 8 * j + col;
        const long upper = ((long)work.batch * m + own_row) * n + own_col;
        const storedv results =
            pair_results(four, upper, upper + 8 * (long)n, own_col, own_col < n && own_row < m,
                         own_col < n && own_row + 8 < m, OUTPUT);
        const int place = (row * BOX_COLS + 8 * j + col) * C_BYTES;
        *(__local stored2*)(to + BOX_PLACE(place)) = results.lo;
        *(__local stored2*)(to + BOX_PLACE(place + 8 * BOX_COLS * C_BYTES)) = results.hi;
      }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    consumer_barrier(consumer);
    if (is_first) {
#pragma unroll
      for (int box = from; box < min(from + ROUND_BOXES, ALL_BOXES); ++box)
        store_box(LOCAL_ADDRESS(staging) + (box - from) * BOX_BYTES, map,
                  work.col + box % ROW_BOXES * BOX_COLS, first_row + box / ROW_BOXES * 64, work.batch);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_wgmma(
    __global const uchar* restrict maps, __global number* restrict parts, int m, int n, int k,
    int batches, int row_tiles, int col_tiles, int k_share OUTPUT_ARGS) {
  __local uchar tiles[STAGES * STAGE_BYTES + RESULT_BYTES] __attribute__((aligned(1024)));
  __local ulong barriers[2 * STAGES];
  const int lid = get_local_id(0);
  Ring ring = ring_of(LOCAL_ADDRESS(tiles), STAGE_BYTES, LOCAL_ADDRESS(barriers), STAGES);
  const int count = row_tiles * col_tiles * SPLITS * batches;
  if (lid == 0) {
    init_ring(&ring, 4 * CONSUMERS);
    barriers_ready();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lid >= CONSUMERS * 128) {
    if (lid == CONSUMERS * 128)
      produce(&ring, (ulong)(size_t)maps, n, k, k_share, row_tiles, col_tiles, count);
    return;
  }

#if STAGED
  if (lid % 128 == 0) acquire_map((ulong)(size_t)maps + 256);
#endif
  const int lane = lid % 32;
  const int consumer = lid / 128;
  const int is_odd = lane & 1;
  const int row = lid % 128 / 32 * 16 + lane / 4;
  for (int number_of = get_group_id(0); number_of < count; number_of += get_num_groups(0)) {
    const Work work = work_of(number_of, row_tiles, col_tiles, SPLITS, BM, OWN_COLS);
    const int k_begin = work.split * k_share;
    const int k_end = min(k_begin + k_share, k);
    number sum[MT][NT * 4];
    EACH(i, MT) EACH(j, NT * 4) sum[i][j] = 0;
    uint last_empty = 0;
    for (int at = k_begin; at < k_end; at += BK) {
      wait_full(&ring);
      const uint tile = tile_of(&ring);
      // Blocks of 64 columns lie side by side (rows across k).
      const ulong a = DESCRIPTOR(tile + consumer * MT * BLOCK, BLOCK);
      const ulong b = DESCRIPTOR(tile + BM * ROW, BLOCK);
      EACH(i, MT) WGMMA_FENCE(sum[i]);
      EACH(s, STEPS) EACH(i, MT)
        WGMMA(sum[i], a + i * (BLOCK / 16) + s * A_STEP, b + s * B_STEP, 1);
      products_commit();
      // The products of the tile before are done, and its place may be filled again.
      products_wait(1);
      if (lane == 0 && last_empty != 0) barrier_arrive(last_empty);
      last_empty = empty_of(&ring);
      advance(&ring);
    }
    products_wait(0);
    EACH(i, MT) WGMMA_DONE(sum[i]);
    if (lane == 0 && last_empty != 0) barrier_arrive(last_empty);

#if STAGED
    store_boxes(sum, tiles + STAGES * STAGE_BYTES + consumer * ROUND_BOXES * BOX_BYTES,
                (ulong)(size_t)maps + 256, work, consumer, row, lane % 4 * 2, m, n, OUTPUT);
#else
    store_items(sum, parts, work, work.row + consumer * MT * 64 + row, work.col + (lane & 2) * 2,
                is_odd, m, n, batches, OUTPUT);
#endif
  }
#if STAGED
  // Local memory must stay until it has been read.
  if (lid % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

// maps: three of 128 bytes, of a, b and, if STAGED, c. Sizes as in gemm_wgmma, b_cols those of op(b); bytes
// of a row. Elements of a row and rows of a matrix are those that exist: the rest reads as zero, and is
// not written.
__kernel void describe(__global uchar* restrict maps, __global const uchar* a,
                       __global const uchar* b, __global const uchar* c, int m, int n, int b_cols,
                       int k, int batches, int a_ld, int b_ld) {
  const ulong map = (ulong)(size_t)maps;
  describe_one(map, (ulong)(size_t)a, A_WIDE ? m : k, A_WIDE ? k : m, batches, a_ld, A_WIDE ? 64 : BK,
               A_WIDE ? BK : BM, BYTES, 128);
  describe_one(map + 128, (ulong)(size_t)b, B_WIDE ? b_cols : k, B_WIDE ? k : b_cols, batches, b_ld,
               B_WIDE ? 64 : BK, B_WIDE ? BK : OWN_COLS, BYTES, 128);
#if STAGED
  describe_one(map + 256, (ulong)(size_t)c, n, m, batches, (ulong)n * C_BYTES, BOX_COLS, 64, C_BYTES,
               32 * C_BYTES);
#endif
}
