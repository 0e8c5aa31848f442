// Products with one short side, for GPUs: `few` rows x[i] times `many` rows w[j], k long. Memory
// decides: w is read once, and x, which is small, waits in local memory as float32 (read by ordinary
// loads instead, it kept w waiting for half of the time on an H200). Three ways to read w:
//   ROWS=1 (float32 rows along k): a warp owns R rows of w, its lanes divide k; several vectors of VW
//   floats are under way per item, straight into registers. Each value of x that is read from local
//   memory is used R times; that keeps local memory (128 bytes a clock and unit) ahead of the
//   device's memory (16 on an H200) up to 32 rows of x.
//   COLUMNS=1 (float32 columns side by side): a lane owns R = VW columns, the warps divide k.
//   STORED=1 (b in any other format, rows along k): groups take blocks of R = 16 rows by rotation, which
//   come into local memory while what came before is decoded and multiplied (gemm_stored_rows.cl).
// SPLIT as in gemm_pipeline.cl: 1 writes the sums of a share of k to `parts`, 2 adds a block's up, 3
// does both. FEW is `few` or the next compiled number above. GATE=1 (STORED alone): half of a block's
// rows are gate's, the others up's.

// The place of step p of row i of x in its tile of KC steps.
#if ROWS
// 4 floats more a row put neighbouring rows on other banks.
#define X_LD (KC + 4)
#define X_TILE (FEW * X_LD)
#define X_PLACE(i, p) ((i) * X_LD + (p))
#else
#define X_TILE (KC * FEW)
#define X_PLACE(i, p) ((p) * FEW + (i))
#endif

// Floats per copy of x: several where both memories have them side by side.
#if X_DEEP && ROWS
#define X_COPY XW
#else
#define X_COPY 1
#endif
#if STORED
typedef uchar w_element;
#else
typedef float w_element;
// Starts the copies of steps p0 … p0 + KC - 1 of x; zero beyond `few` and k_end. Neighbouring items
// read neighbouring floats.
void copy_x(__local float* x_tile, __global const float* x, int p0, int few, int k, int k_end) {
  for (int at = get_local_id(0) * X_COPY; at < FEW * KC; at += ITEMS * X_COPY) {
    const int i = X_DEEP ? at / KC : at % FEW;
    const int p = X_DEEP ? at % KC : at / FEW;
    const int count = i < few ? clamp(k_end - (p0 + p), 0, X_COPY) : 0;
    CAT(copy_async, X_COPY)
    (x_tile + X_PLACE(i, p), count > 0 ? x + X_FROM(i, p0 + p) : x, count);
  }
}

// sum += KC steps of k from p0 on; w: this item's first element of each row, or of its columns, at
// step 0. Inlined, since a call would put the sums in memory.
INLINED void multiply_tile(float (*sum)[FEW], __global const float** w, __local const float* x_tile,
                           int p0, int k_end, int many) {
#if ROWS
  const int lane = get_local_id(0) % 32;
#pragma unroll UNROLL
  for (int q = 0; q < KC; q += 32 * VW) {
    float part[R][VW];
    const bool inside = p0 + q + lane * VW < k_end;
    EACH(r, R) {
      EACH(c, VW) part[r][c] = 0.0f;
      if (inside) GET_VECTOR(part[r], __global, w[r] + p0 + q);
    }
    EACH(i, FEW) {
      float value[VW];
      GET_VECTOR(value, __local, x_tile + X_PLACE(i, q + lane * VW));
      EACH(r, R) EACH(c, VW) sum[r][i] = fma(part[r][c], value[c], sum[r][i]);
    }
  }
#else
#pragma unroll UNROLL
  for (int q = get_local_id(0) / 32; q < KC; q += WARPS) {
    float part[VW];
    EACH(c, VW) part[c] = 0.0f;
    if (p0 + q < k_end) GET_VECTOR(part, __global, w[0] + (long)(p0 + q) * many);
    EACH(i, FEW) EACH(c, VW) sum[c][i] += x_tile[X_PLACE(i, q)] * part[c];
  }
#endif
}

// sum = the products of the steps from k_begin to k_end: a tile of x is used, the next one arrives.
INLINED void multiply_block(float (*sum)[FEW], __global const float** w, __global const float* x,
                            __local float* x_tiles, int k_begin, int k_end, int many, int few,
                            int k) {
  EACH(r, R) EACH(i, FEW) sum[r][i] = 0.0f;
  if (k_begin < k_end) copy_x(x_tiles, x, k_begin, few, k, k_end);
  copies_commit();
  int slot = 0;
  for (int p0 = k_begin; p0 < k_end; p0 += KC) {
    copies_wait(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (p0 + KC < k_end) copy_x(x_tiles + (1 - slot) * X_TILE, x, p0 + KC, few, k, k_end);
    copies_commit();
    multiply_tile(sum, w, x_tiles + slot * X_TILE, p0, k_end, many);
    slot = 1 - slot;
  }
}
#endif

#if CODE_PATH == 1
#define WARP_BARRIER asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define WARP_BARRIER
#endif

// Results of a warp with sums that are added up over its lanes at a time: a power of two, at most 32.
#define RESULTS (R * FEW)
#define AT_A_TIME \
  (RESULTS > 16 ? 32 : RESULTS > 8 ? 16 : RESULTS > 4 ? 8 : RESULTS > 2 ? 4 : RESULTS)

// The sum over the warp's lanes of their values[lane % AT_A_TIME], which is not kept. scratch:
// AT_A_TIME floats per item on code path 0, unused on code path 1.
#if STORED
#elif CODE_PATH == 1
#define FOLD(half)                                                               \
  if (AT_A_TIME > half) {                                                        \
    const bool is_upper = lane & half;                                           \
    EACH(t, half) {                                                              \
      const float lower = values[t], upper = values[(t + half) % AT_A_TIME];     \
      values[t] = (is_upper ? upper : lower) + lane_xor(is_upper ? lower : upper, half, scratch); \
    }                                                                            \
  }
INLINED float sum_of_lanes(float* values, __local float* scratch) {
  const int lane = get_local_id(0) % 32;
  FOLD(16) FOLD(8) FOLD(4) FOLD(2) FOLD(1)
  return near_add(values[0], scratch, 32 / AT_A_TIME, AT_A_TIME);
}
#else
float sum_of_lanes(const float* values, __local float* scratch) {
  const int lid = get_local_id(0);
  for (int t = 0; t < AT_A_TIME; ++t) scratch[lid * AT_A_TIME + t] = values[t];
  barrier(CLK_LOCAL_MEM_FENCE);
  float sum = 0.0f;
  for (int l = 0; l < 32; ++l) sum += scratch[(lid / 32 * 32 + l) * AT_A_TIME + lid % AT_A_TIME];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}
#endif

#if GATE
#define AND_UP(gate, up) gated((float4)(gate), (float4)(up)).x
#else
#define AND_UP(gate, up) (gate)
#endif
// Element (i, j) of the result from its sum and, with GATE, that of `up`.
#define PUT(i, j, sum, sum_of_up)                                                          \
  {                                                                                        \
    const long at = (long)(i) * c_few + (long)(j) * c_many;                                \
    const float scale = B_TYPE == S8C && k > 0 ? w_scale[j] : 1.0f;                        \
    put_one(AND_UP(scale * (sum), sum_of_up), at, A_IS_W ? (i) : (j), OUTPUT);             \
  }
#define KEEP_OR_PUT(place, i, j, sum) \
  {                                   \
    if (SPLIT)                        \
      own[place] = sum;               \
    else                              \
      PUT(i, j, sum, 0.0f)            \
  }
#define PARTS_OF(block, split) \
  (parts + (((batch * blocks) + (block)) * splits + (split)) * (FEW * BLOCK_ROWS))

// The results of a block from its items' sums, or with SPLIT its share of them into `own`.
#define PLACE int block, __global const float *w_scale, int many, int few, int k, int c_few, int c_many
#if !STORED
INLINED void put_block(float (*sum)[FEW], __global float* own, __local float* scratch,
                       PLACE OUTPUT_PARAMS) {
#if COLUMNS
  const int lid = get_local_id(0);
  const int lane = lid % 32;
  const int warp = lid / 32;
  // Warps' sums of four rows of x at a time.
#pragma unroll
  for (int first = 0; first < FEW; first += 4) {
    barrier(CLK_LOCAL_MEM_FENCE);
    EACH(t, 4) if (first + t < FEW)
      EACH(c, VW) scratch[((warp * 4 + t) * 32 + lane) * VW + c] = sum[c][first + t];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int at = lid; at < 4 * BLOCK; at += ITEMS) {
      const int i = first + at / BLOCK;
      const int j = block * BLOCK + at % BLOCK;
      if (i < few && j < many) {
        float total = 0.0f;
        for (int s = 0; s < WARPS; ++s) total += scratch[s * 4 * BLOCK + at];
        KEEP_OR_PUT(i * BLOCK + at % BLOCK, i, j, total)
      }
    }
  }
#else
  const int lane = get_local_id(0) % 32;
  const int warp = get_local_id(0) / 32;
  UNROLL_LANES
  for (int first = 0; first < RESULTS; first += AT_A_TIME) {
    float values[AT_A_TIME];
    EACH(t, AT_A_TIME)
      values[t] = first + t < RESULTS ? sum[(first + t) % RESULTS / FEW][(first + t) % FEW] : 0.0f;
    const float total = sum_of_lanes(values, scratch);
    const int t = first + lane;
    const int i = t % FEW;
    const int r = t / FEW;
    const int j = (block * WARPS + warp) * R + r;
    if (lane < AT_A_TIME && t < RESULTS && i < few && j < many)
      KEEP_OR_PUT(i * BLOCK_ROWS + warp * R + r, i, j, total)
  }
#endif
}
#else
// The warps' sums meet in local memory.
INLINED void hand_over(float (*sum)[WARP_LANES][LANE_SUMS], __local float* scratch) {
  const int lid = get_local_id(0);
  EACH(t, SUMS) EACH_LANE(l) EACH(e, LANE_SUMS) {
    const int lane = LANE_OF(lid, l);
    if (COL_OF(lane, t, e) < COLS)
      scratch[(WARP_OF(lid) * R + ROW_OF(lane, t, e)) * COLS + COL_OF(lane, t, e)] = sum[t][l][e];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}
void put_block(__local const float* scratch, __global float* own, __global const uchar* w,
               __global const x_element* x, int k_begin, int k_end, int row_bytes,
               PLACE OUTPUT_PARAMS) {
  for (int first = 0; first < OWN * FEW; first += ITEMS) {
    const int at = first + (int)get_local_id(0);
    const int i = at / OWN;
    const int r = at % OWN;
    const int j = block * OWN + r;
    if (i >= few || j >= many) continue;
    float total[2] = {0.0f, 0.0f};
    EACH(up, 1 + GATE) {
      EACH(s, WARPS) {
        float of_warp = 0.0f;
        EACH(p, PARTS) of_warp += scratch[(s * R + r + up * OWN) * COLS + i * PARTS + PARTS - 1 - p];
        total[up] += of_warp;
      }
      total[up] = finished(total[up], w, x, i, j + (long)up * many, few, k, k_begin, k_end, row_bytes);
      if (SPLIT) own[i * BLOCK_ROWS + r + up * OWN] = total[up];
    }
    if (!SPLIT) PUT(i, j, total[0], total[1])
  }
}
#endif

// The results of a block from its parts, one after the other.
void add_parts(__global const float* parts, int splits, PLACE OUTPUT_PARAMS) {
  for (int at = get_local_id(0); at < FEW * BLOCK; at += ITEMS) {
    const int i = at / BLOCK;
    const int j = block * BLOCK + at % BLOCK;
    if (i >= few || j >= many) continue;
    const int place = i * BLOCK_ROWS + at % BLOCK / OWN * R + at % OWN;
    float total[2] = {0.0f, 0.0f};
    for (int s = 0; s < splits; ++s)
      EACH(up, 1 + GATE)
        total[up] += load_shared1(parts + (long)s * (FEW * BLOCK_ROWS) + place + up * OWN);
    PUT(i, j, total[0], total[1])
  }
}

// A_IS_W: w is a, so that its rows are c's. c_few, c_many: distance in c of neighbours along x's rows
// and along w's. X_DEEP: x's rows run along k, and XW divides k. VW divides the length of w's rows.
// Groups of a share of k: `groups`, each of every groups-th of `blocks` blocks; as many as blocks
// unless STORED, with a share of k of at most KC. k = 0 reads neither w nor x.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_skinny(
    __global const w_element* restrict w, __global const x_element* restrict x,
    __global const float* restrict w_scale, __global float* parts, __global uint* arrivals,
    int many, int few, int k, int c_few, int c_many, int blocks, int groups, int splits,
    int k_share OUTPUT_ARGS) {
#if STORED
  __local uint x_tile[KC / 16 * X_STEP] __attribute__((aligned(16)));
  __local uint stages[WARPS * STAGES * STAGE_WORDS] __attribute__((aligned(16)));
  __local float scratch[2 * WARPS * R * COLS];
#else
  __local float x_tiles[2 * X_TILE] __attribute__((aligned(16)));
#if COLUMNS
  __local float scratch[ITEMS * 4 * VW] __attribute__((aligned(16)));
#elif CODE_PATH == 0
  __local float scratch[ITEMS * AT_A_TIME];
#else
  __local float* scratch = 0;
#endif
#endif
#if SPLIT == 3
  __local uint order;
#endif
  const int lid = get_local_id(0);
  const int lane = lid % 32;
  const int warp = lid / 32;
  const int group = (int)(get_group_id(0) % groups);
  const int shares = SPLIT == 2 ? 1 : splits;
  const int split = (int)(get_group_id(0) / groups % shares);
  const long batch = get_group_id(0) / groups / shares;
  const int k_begin = min(split * k_share, k);
  const int k_end = min(k_begin + k_share, k);
  w += batch * many * k;
  x += batch * few * k;
  c += batch * many * few;
  c0 += batch * many * few;
  residual += batch * many * few;

#if SPLIT != 2
#if STORED
  const int row_bytes = (int)((long)k * (CHUNK_WORDS * 4) / CHUNK);
  const int first_byte = k_begin / CHUNK * (CHUNK_WORDS * 4);
  const int chunks = (k_end - k_begin + CHUNK - 1) / CHUNK;
  const int unit = WARP_OF(lid);
  __local uint* ring = stages + unit * (STAGES * STAGE_WORDS);
  int copy_block = group;  // what the next copy reads
  int copy_chunk = unit;
  int slot = 0, parity = 0;
#define COPY_CHUNK(slot)                                                                       \
  copy_chunk_of(ring + (slot)*STAGE_WORDS, w + first_byte, copy_block * OWN, copy_chunk, many, \
                row_bytes, row_bytes - first_byte);                                            \
  copies_commit();                                                                             \
  copy_chunk += WARPS;                                                                         \
  if (copy_chunk >= chunks) copy_chunk = unit, copy_block += groups;
  for (int s = 0; s < STAGES - 1; ++s) {
    COPY_CHUNK(s)
  }
  keep_x(x_tile, x, few, k, k_begin, k_end);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int block = group; block < blocks; block += groups) {
    float sum[SUMS][WARP_LANES][LANE_SUMS];
    EACH(t, SUMS) EACH_LANE(l)
      EACH(e, LANE_SUMS) sum[t][l][e] = 0.0f;
    for (int chunk = unit; chunk < chunks; chunk += WARPS) {
      copies_wait(STAGES - 2);
      WARP_BARRIER;
      COPY_CHUNK(slot == 0 ? STAGES - 1 : slot - 1)
      multiply_chunk(sum, ring + slot * STAGE_WORDS, x_tile + chunk * STEPS * X_STEP);
      slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
    // What a warp hands over next lies elsewhere: no barrier after put_block.
    __local float* const meeting = scratch + parity * (WARPS * R * COLS);
    parity = 1 - parity;
    hand_over(sum, meeting);
    put_block(meeting, PARTS_OF(block, split), w, x, k_begin, k_end, row_bytes, block, w_scale, many,
              few, k, c_few, c_many, OUTPUT);
  }
#else
  {
    const int block = group;
    __global const float* from[R];
#if ROWS
    EACH(r, R) from[r] = w + (long)min(block * BLOCK + warp * R + r, many - 1) * k + lane * VW;
#else
    from[0] = w + min(block * BLOCK + lane * VW, many - VW);
#endif
    float sum[R][FEW];
    multiply_block(sum, from, x, x_tiles, k_begin, k_end, many, few, k);
    put_block(sum, PARTS_OF(block, split), scratch, block, w_scale, many, few, k, c_few,
              c_many, OUTPUT);
  }
#endif
#endif  // SPLIT != 2
#if SPLIT == 3
  if (!comes_last(arrivals + batch * groups + group, splits, &order)) return;
#endif
#if SPLIT >= 2
  for (int block = group; block < blocks; block += groups)
    add_parts(PARTS_OF(block, 0), splits, block, w_scale, many, few, k, c_few, c_many, OUTPUT);
#endif
}
