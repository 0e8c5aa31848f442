// Products with one short side, for GPUs: `few` rows x[i] times `many` rows w[j], k long. Memory
// decides: w is read once, straight into registers, several vectors of VW floats under way per item;
// x is small: KC steps of k wait in local memory, and the next KC arrive meanwhile (code_paths.cl; read by
// ordinary loads instead, x kept w waiting for half of the time on an H200). a and b take either part.
//   W_DEEP=1 (w's rows along k): a warp owns R rows of w, its lanes divide k. Each value of x that is
//   read from local memory is used R times; that keeps local memory (128 bytes a clock and unit)
//   ahead of the device's memory (16 on an H200) up to 32 rows of x.
//   W_DEEP=0 (w's columns side by side): a lane owns VW neighbouring columns, the warps divide k.
// SPLIT as in gemm_pipeline.cl: 1 writes the sums of a share of k to `parts`, 2 adds a block's up, 3
// does both. FEW is `few` or the next compiled number above.

#define ITEMS (32 * WARPS)
// Rows or columns of w that a group owns.
#define BLOCK (W_DEEP ? WARPS * R : 32 * VW)
#if W_DEEP
// [FEW][KC]; 4 floats more a row put neighbouring rows on other banks.
#define X_LD (KC + 4)
#define X_TILE (FEW * X_LD)
#define X_PLACE(i, p) ((i) * X_LD + (p))
#else
#define X_TILE (KC * FEW)
#define X_PLACE(i, p) ((p) * FEW + (i))
#endif
// Floats per copy of x: several where both memories have them side by side.
#if X_DEEP && W_DEEP
#define X_COPY XW
#define COPY_SOME CAT(copy_async, XW)
#else
#define X_COPY 1
#define COPY_SOME copy_async1
#endif

// Starts the copies of steps p0 … p0 + KC - 1 of x; zero beyond `few` and k_end. Neighbouring items
// read neighbouring floats.
#define COPY_X(slot, p0)                                                                    \
  for (int at = lid * X_COPY; at < FEW * KC; at += ITEMS * X_COPY) {                        \
    const int i = X_DEEP ? at / KC : at % FEW;                                              \
    const int p = X_DEEP ? at % KC : at / FEW;                                              \
    const int count = i < few ? clamp(k_end - ((p0) + p), 0, X_COPY) : 0;                   \
    __global const float* source =                                                          \
        count > 0 ? x + (X_DEEP ? (long)i * k + (p0) + p : (long)((p0) + p) * few + i) : x; \
    COPY_SOME(x_tiles + (slot) * X_TILE + X_PLACE(i, p), source, count);  \
  }

#if VW == 4
typedef float4 wvec;
#define W_AT(p) (*(__global const float4*)(p))
#define X_AT(p) (*(__local const float4*)(p))
#define MAC(sum, u, v) \
  sum = fma((u).w, (v).w, fma((u).z, (v).z, fma((u).y, (v).y, fma((u).x, (v).x, sum))))
#elif VW == 2
typedef float2 wvec;
#define W_AT(p) (*(__global const float2*)(p))
#define X_AT(p) (*(__local const float2*)(p))
#define MAC(sum, u, v) sum = fma((u).y, (v).y, fma((u).x, (v).x, sum))
#else
typedef float wvec;
#define W_AT(p) (*(p))
#define X_AT(p) (*(p))
#define MAC(sum, u, v) sum = fma(u, v, sum)
#endif

// Element (i, j) of the result, or of this group's share of it.
#define STORE(i, j, total)                                                    \
  if (SPLIT) {                                                                \
    own[(i) * BLOCK + (j) - block * BLOCK] = total;                           \
  } else {                                                                    \
    const long at = (long)(i) * c_few + (long)(j) * c_many;                   \
    const float one = beta != 0.0f ? alpha * (total) + beta * c0[at] : alpha * (total); \
    c[at] = EPILOGUE_ONE(one, A_IS_W ? (i) : (j), at);                        \
  }

// A_IS_W: w is a, so that its rows are c's. c_few, c_many: distance in c of neighbours along x's rows and along w's. X_DEEP: x's rows run along
// k, and XW divides k. VW divides the length of w's rows.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_skinny(
    __global const float* restrict w, __global const float* restrict x,
    __global const float* restrict c0, __global float* restrict c, __global float* parts, __global uint* arrivals,
    int many, int few, int k, int c_few, int c_many, int blocks, int splits,
    int k_share, float alpha, float beta EPILOGUE_ARGS) {
  __local float x_tiles[2 * X_TILE] __attribute__((aligned(16)));
  __local float partial[ITEMS * 4 * VW] __attribute__((aligned(16)));
#if SPLIT == 3
  __local uint order;
#endif
  const int lid = get_local_id(0);
  const int lane = lid % 32;
  const int warp = lid / 32;
  const long group = get_group_id(0);
  const int block = (int)(group % blocks);
#if SPLIT == 2
  const int split = 0;
  const long batch = group / blocks;
#else
  const int split = (int)(group / blocks % splits);
  const long batch = group / blocks / splits;
#endif
  const int k_begin = split * k_share;
  const int k_end = min(k_begin + k_share, k);
  w += batch * many * k;
  x += batch * few * k;
  const long of_block = batch * blocks + block;
  parts += of_block * splits * (FEW * BLOCK);
  __global float* own = parts + split * (FEW * BLOCK);
  c += batch * many * few;
  c0 += batch * many * few;
  EPILOGUE_FROM(batch * many * few)

#if SPLIT != 2
#if W_DEEP
  const int j0 = (block * WARPS + warp) * R;
  __global const float* row[R];
#pragma unroll
  for (int r = 0; r < R; ++r) row[r] = w + (long)min(j0 + r, many - 1) * k + lane * VW;
  float sum[R][FEW];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int i = 0; i < FEW; ++i) sum[r][i] = 0.0f;
#else
  const int j0 = (block * 32 + lane) * VW;
  __global const float* column = w + min(j0, many - VW);
  wvec sum[FEW];
#pragma unroll
  for (int i = 0; i < FEW; ++i) sum[i] = 0.0f;
#endif

  if (k_begin < k_end) COPY_X(0, k_begin)
  copies_commit();
  int slot = 0;
  for (int p0 = k_begin; p0 < k_end; p0 += KC) {
    copies_wait(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (p0 + KC < k_end) COPY_X(1 - slot, p0 + KC)
    copies_commit();
    __local const float* x_tile = x_tiles + slot * X_TILE;
    slot = 1 - slot;
#if W_DEEP
#pragma unroll UNROLL
    for (int q = 0; q < KC; q += 32 * VW) {
      wvec part[R];
      const bool inside = p0 + q + lane * VW < k_end;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        part[r] = 0.0f;
        if (inside) part[r] = W_AT(row[r] + p0 + q);
      }
#pragma unroll
      for (int i = 0; i < FEW; ++i) {
        const wvec value = X_AT(x_tile + X_PLACE(i, q + lane * VW));
#pragma unroll
        for (int r = 0; r < R; ++r) MAC(sum[r][i], part[r], value);
      }
    }
#else
#pragma unroll UNROLL
    for (int q = warp; q < KC; q += WARPS) {
      wvec part = 0.0f;
      if (p0 + q < k_end) part = W_AT(column + (long)(p0 + q) * many);
#pragma unroll
      for (int i = 0; i < FEW; ++i) sum[i] += x_tile[X_PLACE(i, q)] * part;
    }
#endif
  }

#if W_DEEP
  // Lanes' sums in turns of 4·VW results, each added up by one item of the warp.
#pragma unroll
  for (int first = 0; first < R * FEW; first += 4 * VW) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int t = 0; t < 4 * VW; ++t)
      if (first + t < R * FEW)
        partial[(warp * 4 * VW + t) * 32 + lane] = sum[(first + t) / FEW][(first + t) % FEW];
    barrier(CLK_LOCAL_MEM_FENCE);
    const int r = (first + lane) / FEW;
    const int i = (first + lane) % FEW;
    if (lane < 4 * VW && r < R && i < few && j0 + r < many) {
      float total = 0.0f;
      // Each item starts at a bank of its own.
      for (int l = 0; l < 32; ++l) total += partial[(warp * 4 * VW + lane) * 32 + (l + lane) % 32];
      STORE(i, j0 + r, total)
    }
  }
#else
  // Warps' sums of four rows of x at a time.
#pragma unroll
  for (int first = 0; first < FEW; first += 4) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int t = 0; t < 4; ++t)
      if (first + t < FEW) ((__local wvec*)partial)[(warp * 4 + t) * 32 + lane] = sum[first + t];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int at = lid; at < 4 * 32 * VW; at += ITEMS) {
      const int i = first + at / (32 * VW);
      const int j = block * 32 * VW + at % (32 * VW);
      if (i < few && j < many) {
        float total = 0.0f;
        for (int s = 0; s < WARPS; ++s) total += partial[s * 4 * 32 * VW + at];
        STORE(i, j, total)
      }
    }
  }
#endif

#endif  // SPLIT != 2
#if SPLIT == 3
  if (!comes_last(arrivals + of_block, splits, &order)) return;
#endif
#if SPLIT >= 2
  for (int at = lid; at < FEW * BLOCK; at += ITEMS) {
    const int i = at / BLOCK;
    const int j = block * BLOCK + at % BLOCK;
    if (i < few && j < many) {
      float total = 0.0f;
      for (int s = 0; s < splits; ++s) total += load_shared1(parts + s * (FEW * BLOCK) + at);
      const long place = (long)i * c_few + (long)j * c_many;
      const float one = beta != 0.0f ? alpha * total + beta * c0[place] : alpha * total;
      c[place] = EPILOGUE_ONE(one, A_IS_W ? i : j, place);
    }
  }
#endif
}
