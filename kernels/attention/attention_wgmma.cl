// Attention of 16-bit operands on Hopper's matrix units: wgmma, fed by the copy engine, with online softmax
// (maths f16, bf16). TYPE: F16 or BF16. docs/wgmma.md explains wgmma and copies, common/wgmma.cl has both.
//
// A group has CONSUMERS warpgroups, which compute 64 rows of o each, and one warp that starts copies
// (the roles are FlashAttention-3's, arXiv 2407.08608). It stays and takes blocks of BQ queries of a head,
// one after the other. Tiles of BK keys and of BK values go through a ring of STAGES places in the order
// of their use: the next keys come before the values of the tile before.
//
// Scores stay in registers. They become weights there, and rounded in pairs they are the next product's
// first operand. While a consumer weighs the scores of one tile, the matrix unit adds the values of the
// tile before and multiplies for the other consumers.
//
// Tiles in local memory: blocks of 64 columns, a row of 128 bytes per query, key or value, swizzled.
// Columns beyond D are zeros. A row of o beyond TYPE's range is computed again (strict_row).

#define BQ (CONSUMERS * 64)
#define ITEMS (CONSUMERS * 128 + 128)
// Registers of an item: the warps on a quarter of a unit share 512, and consumers need most of them. One
// consumer and the warpgroup of the producer have 255 each.
#if CONSUMERS == 2
#define PRODUCER_REGISTERS 24
#define CONSUMER_REGISTERS 240
#elif CONSUMERS == 3
#define PRODUCER_REGISTERS 32
#define CONSUMER_REGISTERS 160
#endif
#define ROW 128
#define BLOCKS ((D + 63) / 64)
#define Q_BYTES (BLOCKS * BQ * ROW)
#define TILE_BYTES (BLOCKS * BK * ROW)
#define LOCAL_BYTES (Q_BYTES + STAGES * TILE_BYTES)
// From one wgmma's operand to the next one's, in 16 bytes: 16 columns on, in blocks of so many rows; 16 keys on.
#define COLUMNS_ON(s, rows) ((s) / 4 * ((rows)*ROW / 16) + (s) % 4 * 2)
#define KEYS_ON(s) ((s) * (16 * ROW / 16))

// The group's block of queries in this round, and the tiles of keys that it sees: at least one. Causal
// blocks differ: the longest come first, and every other round goes the other way, so that sums are even.
typedef struct {
  int head, row0, tiles;
} Work;
#define EACH_WORK(count) \
  for (int round = 0; round * (int)get_num_groups(0) < (count); ++round)
INLINED int number_of(int round) {
  const int groups = get_num_groups(0);
  const int id = get_group_id(0);
  return round * groups + (round % 2 ? groups - 1 - id : id);
}
INLINED Work work_of(int number, int heads, int q_len, int kv_len, int causal) {
  const int row_blocks = (q_len + BQ - 1) / BQ;
  Work work;
  work.head = causal ? number % heads : number / row_blocks;
  work.row0 = (row_blocks - 1 - (causal ? number / heads : number % row_blocks)) * BQ;
  const int end = visible_keys(min(work.row0 + BQ, q_len) - 1, 1, q_len, kv_len, causal);
  work.tiles = max(1, (end + BK - 1) / BK);
  return work;
}

// Copies `rows` rows of a matrix to the ring's next place, at `to`.
INLINED void produce_rows(Ring* ring, uint to, ulong map, int row, int matrix, int rows) {
  wait_empty(ring, BLOCKS * rows * ROW);
  EACH(i, BLOCKS) copy_box(to + i * rows * ROW, map, 64 * i, row, matrix, full_of(ring));
}
INLINED void produce_tile(Ring* ring, ulong map, int tile, int head) {
  produce_rows(ring, tile_of(ring), map, tile * BK, head, BK);
  advance(ring);
}
// One work-item starts all copies of a group.
INLINED void produce(Ring* queries, Ring* ring, ulong maps, int heads, int group, int q_len, int kv_len,
                     int causal, int count) {
  EACH(i, 3) acquire_map(maps + 128 * i);
  queries->parity = ring->parity = 1;
  EACH_WORK(count) {
    const int number = number_of(round);
    if (number >= count) continue;
    const Work work = work_of(number, heads, q_len, kv_len, causal);
    const int kv_head = work.head / group;
    produce_rows(queries, queries->tiles, maps, work.row0, work.head, BQ);
    advance(queries);
    produce_tile(ring, maps + 128, 0, kv_head);
    for (int tile = 1; tile < work.tiles; ++tile) {
      produce_tile(ring, maps + 128, tile, kv_head);
      produce_tile(ring, maps + 256, tile - 1, kv_head);
    }
    produce_tile(ring, maps + 256, work.tiles - 1, kv_head);
  }
}

// Consumers start products one after the other, in a fixed order, by barriers of two of them.
INLINED void wait_to_start(int consumer) {
#if CONSUMERS > 1
  asm volatile("bar.sync %0, 256;" ::"r"(1 + consumer) : "memory");
#endif
}
INLINED void let_next_start(int consumer) {
#if CONSUMERS > 1
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + (consumer + 1) % CONSUMERS) : "memory");
#endif
}

// The products of a tile are started here, and waited for elsewhere.
INLINED void multiply_keys(float* score, ulong q, ulong k) {
  EACH(s, (D + 15) / 16) SCORES(score, q + COLUMNS_ON(s, BQ), k + COLUMNS_ON(s, BK), s > 0);
  products_commit();
}
INLINED void add_values(float* sum, uint (*weights)[4], ulong v) {
  EACH(s, BK / 16) VALUES(sum, weights[s], v + KEYS_ON(s), 1);
  products_commit();
}

// An item has two rows, h = 0 and 1, and of fragment j the columns 8j + 2·(lane mod 4) and the next one.
#define OF(x, j, h, r) (x)[4 * (j) + 2 * (h) + (r)]

// Scores become weights, 2^(factor·(score - largest)), 0 for what a row does not see where the tile is_edge.
// What was added before has to shrink. Two chains of sums and of maxima a row hide latency.
INLINED void weigh(float* score, float* high, float* total, float* shrink, const int* ends, int key0,
                   bool is_edge, float factor) {
  if (is_edge) {
    EACH(h, 2) EACH(j, BK / 8) EACH(r, 2)
      if (key0 + 8 * j + r >= ends[h]) OF(score, j, h, r) = -INFINITY;
  }
  EACH(h, 2) {
    float tops[2] = {high[h], high[h]};
    EACH(j, BK / 8) EACH(r, 2) tops[r] = fmax(tops[r], OF(score, j, h, r));
    float top = fmax(tops[0], tops[1]);
    top = fmax(top, lane_xor(top, 1, 0));
    top = fmax(top, lane_xor(top, 2, 0));
    shrink[h] = fast_exp2((high[h] - top) * factor);
    const float base = top * factor;
    high[h] = top;
    float sums[2] = {total[h] * shrink[h], 0.0f};
    EACH(j, BK / 8) EACH(r, 2) {
      OF(score, j, h, r) = fast_exp2(fma(OF(score, j, h, r), factor, -base));
      sums[r] += OF(score, j, h, r);
    }
    total[h] = sums[0] + sums[1];
  }
}
INLINED void round_weights(uint (*weights)[4], const float* score) {
  EACH(s, BK / 16) EACH(i, 4)
    PACK_INTO(weights[s][i], OF(score, 2 * s + i / 2, i % 2, 0), OF(score, 2 * s + i / 2, i % 2, 1));
}
INLINED void shrink_sums(float* sum, const float* shrink) {
  EACH(j, D / 8) EACH(h, 2) EACH(r, 2) OF(sum, j, h, r) *= shrink[h];
}

// The sums of a consumer's 64 rows of o.
INLINED void consume(Ring* queries, Ring* ring, int consumer, int tiles, const int* ends,
                     int seen_by_all, float factor, float* sum, float* total) {
  const bool is_first = get_local_id(0) % 32 == 0;
  const ulong q = DESCRIPTOR(queries->tiles + consumer * 64 * ROW, 0);
  float high[2] = {-FLT_MAX, -FLT_MAX};
  float shrink[2];
  float score[BK / 2];
  uint weights[BK / 16][4];
  EACH(h, 2) total[h] = 0.0f;
  EACH(i, D / 2) sum[i] = 0.0f;
  wait_full(queries);
  wait_full(ring);
  wait_to_start(consumer);
  SCORES_FENCE(score);
  multiply_keys(score, q, DESCRIPTOR(tile_of(ring), 0));
  let_next_start(consumer);
  products_wait(0);
  SCORES_DONE(score);
  if (is_first) barrier_arrive(empty_of(ring));
  advance(ring);
  weigh(score, high, total, shrink, ends, 0, BK > seen_by_all, factor);
  round_weights(weights, score);
  wait_full(ring);
  for (int tile = 1; tile < tiles; ++tile) {
    const Ring keys = *ring;
    advance(ring);
    wait_to_start(consumer);
    SCORES_FENCE(score);
    multiply_keys(score, q, DESCRIPTOR(tile_of(&keys), 0));
    shrink_sums(sum, shrink);
    wait_full(ring);
    VALUES_FENCE(sum);
    add_values(sum, weights, DESCRIPTOR(tile_of(ring), BK * ROW));
    let_next_start(consumer);
    products_wait(1);
    SCORES_DONE(score);
    if (is_first) barrier_arrive(empty_of(&keys));
    weigh(score, high, total, shrink, ends, tile * BK, (tile + 1) * BK > seen_by_all, factor);
    // The next tile is waited for here: without a branch before it ptxas moves the wait for the values'
    // product to where the keys' product ends, and nothing would run beside the weights.
    const uint values = empty_of(ring);
    advance(ring);
    wait_full(ring);
    products_wait(0);
    VALUES_DONE(sum);
    if (is_first) barrier_arrive(values);
    round_weights(weights, score);
  }
  if (is_first) barrier_arrive(empty_of(queries));
  advance(queries);
  shrink_sums(sum, shrink);
  VALUES_FENCE(sum);
  add_values(sum, weights, DESCRIPTOR(tile_of(ring), BK * ROW));
  products_wait(0);
  VALUES_DONE(sum);
  if (is_first) barrier_arrive(empty_of(ring));
  advance(ring);
}

// An item's part of row h of o, which starts at `o`: whether all is within the format's range.
INLINED bool finish_row(float* sum, int h, float total, bool sees_none) {
  total += lane_xor(total, 1, 0);
  total += lane_xor(total, 2, 0);
  const float factor = 1.0f / total;
  float wrong = 0.0f;
  EACH(j, D / 8) EACH(r, 2) {
    const float value = sees_none ? 0.0f : OF(sum, j, h, r) * factor;
    wrong = fabs(value) <= LARGEST ? wrong : 1.0f;
    OF(sum, j, h, r) = value;
  }
  wrong = fmax(wrong, lane_xor(wrong, 1, 0));
  wrong = fmax(wrong, lane_xor(wrong, 2, 0));
  return wrong == 0.0f;
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void attention_wgmma(
    __global const uchar* restrict maps, __global const element* restrict q,
    __global const element* restrict k, __global const element* restrict v,
    __global element* restrict o, int heads, int group, int q_len, int kv_len, int count, int causal,
    float scale2) {
  __local uchar tiles[LOCAL_BYTES] __attribute__((aligned(1024)));
  __local ulong barriers[2 * (STAGES + 1)];
  const int lid = get_local_id(0);
  // A second place for queries made no difference on an H200.
  Ring queries = ring_of(LOCAL_ADDRESS(tiles), Q_BYTES, LOCAL_ADDRESS(barriers), 1);
  Ring ring = ring_of(queries.tiles + Q_BYTES, TILE_BYTES, queries.full + 16, STAGES);
  if (lid == 0) {
    init_ring(&queries, 4 * CONSUMERS);
    init_ring(&ring, 4 * CONSUMERS);
    barriers_ready();
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lid >= CONSUMERS * 128) {
#if CONSUMERS > 1
    registers_lower(PRODUCER_REGISTERS);
#endif
    if (lid == CONSUMERS * 128)
      produce(&queries, &ring, (ulong)(size_t)maps, heads, group, q_len, kv_len, causal, count);
    return;
  }
#if CONSUMERS > 1
  registers_raise(CONSUMER_REGISTERS);
#endif

  const int consumer = lid / 128;
  const int lane = lid % 32;
  if (consumer == CONSUMERS - 1) let_next_start(consumer);
  EACH_WORK(count) {
    const int number = number_of(round);
    if (number >= count) continue;
    const Work work = work_of(number, heads, q_len, kv_len, causal);
    const int warp_row = work.row0 + lid / 32 * 16;
    int sees[2], ends[2];
    EACH(h, 2) {
      sees[h] = visible_keys(min(warp_row + lane / 4 + 8 * h, q_len - 1), 1, q_len, kv_len, causal);
      ends[h] = sees[h] - lane % 4 * 2;
    }
    float sum[D / 2];
    float total[2];
    consume(&queries, &ring, consumer, work.tiles, ends,
            visible_keys(min(warp_row, q_len - 1), 1, q_len, kv_len, causal), scale2, sum, total);
    EACH(h, 2) {
      const int row = warp_row + lane / 4 + 8 * h;
      const bool is_right = finish_row(sum, h, total[h], sees[h] == 0);
      const long start = ((long)work.head * q_len + row) * D;
      if (row >= q_len) continue;
      if (is_right) {
        EACH(j, D / 8) {
          uint two;
          PACK_INTO(two, OF(sum, j, h, 0), OF(sum, j, h, 1));
          *(__global uint*)(o + start + 8 * j + lane % 4 * 2) = two;
        }
      } else if (lane % 4 == 0) {
        const long keys = (long)(work.head / group) * kv_len * D;
        strict_row(q + start, k + keys, v + keys, o + start, sees[h], scale2);
      }
    }
  }
}

// maps: three of 128 bytes, of q, k and v.
__kernel void describe(__global uchar* restrict maps, __global const uchar* q, __global const uchar* k,
                       __global const uchar* v, int heads, int group, int q_len, int kv_len) {
  const ulong map = (ulong)(size_t)maps;
  describe_one(map, (ulong)(size_t)q, D, q_len, heads, 2 * D, 64, BQ, 2, 128);
  describe_one(map + 128, (ulong)(size_t)k, D, kv_len, heads / group, 2 * D, 64, BK, 2, 128);
  describe_one(map + 256, (ulong)(size_t)v, D, kv_len, heads / group, 2 * D, 64, BK, 2, 128);
}
