// GEMM, the ladder on a GPU: from one item per element to tiles in local memory and registers, one
// idea a rung. For reading and for `bench --ladder`; the fast path goes on where this ends. The
// ideas: gemm.hpp.
//   c = alpha · op(a) · op(b) + beta · c0, element (i,p) of op(a) at a[i·a_row + p·a_col], (p,j) of
//   op(b) at b[p·b_row + j·b_col]; one of each pair of strides is 1. SIDE·SIDE items a group.
// Sizes and strides are 64 bits wide throughout, which costs every rung alike.

#define OPERANDS                                                                              \
  __global const float *restrict a, __global const float *restrict b, __global const float *c0, \
      __global float *c, long batch, long m, long n, long k, long a_row, long a_col, long b_row, \
      long b_col, float alpha, float beta
#define ITEMS (SIDE * SIDE)

void put(__global float* c, __global const float* c0, long at, float alpha, float sum, float beta) {
  c[at] = alpha * sum + (beta != 0 ? beta * c0[at] : 0.0f);
}

// Step 0. One item per element of c, neighbours along a row: each product loads a and b from global
// memory, b in whole lines, a from the cache that the row's other items fill.
__kernel void gemm_naive(OPERANDS) {
  const long item = get_global_id(0);
  if (item >= batch * m * n) return;
  const long j = item % n;
  const long i = item / n % m;
  const long of_batch = item / (m * n);
  a += of_batch * m * k + i * a_row;
  b += of_batch * k * n + j * b_col;
  float sum = 0;
  for (long p = 0; p < k; ++p) sum += a[p * a_col] * b[p * b_row];
  put(c, c0, item, alpha, sum, beta);
}

// The tile that a group computes: BM×BN elements of matrix `of_batch` from (row, col) on.
#define FIND_TILE(BM, BN)                                            \
  const long across = (n + (BN)-1) / (BN);                           \
  const long down = (m + (BM)-1) / (BM);                             \
  const long tile = get_group_id(0);                                 \
  const long of_batch = tile / (down * across);                      \
  const long row = tile / across % down * (BM);                      \
  const long col = tile % across * (BN);                             \
  const int tx = get_local_id(0) % SIDE;                             \
  const int ty = get_local_id(0) / SIDE;                             \
  a += of_batch * m * k;                                             \
  b += of_batch * k * n;                                             \
  c += of_batch * m * n;                                             \
  c0 += of_batch * m * n;

// Elements outside of a matrix are zeros.
#define A_AT(i, p) ((i) < m && (p) < k ? a[(i)*a_row + (p)*a_col] : 0.0f)
#define B_AT(p, j) ((p) < k && (j) < n ? b[(p)*b_row + (j)*b_col] : 0.0f)

// Step 1. A group copies a SIDE×SIDE tile of a and of b into local memory, neighbours along memory
// whichever way the operand lies; each element is then used SIDE times.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tiled(OPERANDS) {
  __local float as[SIDE][SIDE + 1];  // [i][p]; one more, so that columns lie in different banks
  __local float bs[SIDE][SIDE + 1];  // [p][j]
  FIND_TILE(SIDE, SIDE)
  float sum = 0;
  for (long first = 0; first < k; first += SIDE) {
    if (a_col == 1) {
      as[ty][tx] = A_AT(row + ty, first + tx);
    } else {
      as[tx][ty] = A_AT(row + tx, first + ty);
    }
    if (b_col == 1) {
      bs[ty][tx] = B_AT(first + ty, col + tx);
    } else {
      bs[tx][ty] = B_AT(first + tx, col + ty);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int p = 0; p < SIDE; ++p) sum += as[ty][p] * bs[p][tx];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (row + ty < m && col + tx < n) put(c, c0, (row + ty) * n + col + tx, alpha, sum, beta);
}

// Rows and columns that an item computes, and how deep the tiles in local memory are.
#define SIZE 8
#define DEPTH 8
#define TILE (SIDE * SIZE)

// Step 2. An item computes SIZE×SIZE elements in registers, SIDE apart: a value from local memory
// is used SIZE times, so that local memory no longer limits.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_registers(OPERANDS) {
  __local float as[DEPTH][TILE + 1];
  __local float bs[DEPTH][TILE + 1];
  FIND_TILE(TILE, TILE)
  float sum[SIZE][SIZE] = {{0}};
  for (long first = 0; first < k; first += DEPTH) {
    for (int at = get_local_id(0); at < DEPTH * TILE; at += ITEMS) {
      const int deep = at % DEPTH, wide = at / DEPTH;      // neighbours along k
      const int deep_too = at / TILE, wide_too = at % TILE;  // neighbours along m or n
      if (a_col == 1) {
        as[deep][wide] = A_AT(row + wide, first + deep);
      } else {
        as[deep_too][wide_too] = A_AT(row + wide_too, first + deep_too);
      }
      if (b_col == 1) {
        bs[deep_too][wide_too] = B_AT(first + deep_too, col + wide_too);
      } else {
        bs[deep][wide] = B_AT(first + deep, col + wide);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int p = 0; p < DEPTH; ++p) {
      float of_a[SIZE], of_b[SIZE];
#pragma unroll
      for (int i = 0; i < SIZE; ++i) of_a[i] = as[p][ty + i * SIDE];
#pragma unroll
      for (int j = 0; j < SIZE; ++j) of_b[j] = bs[p][tx + j * SIDE];
#pragma unroll
      for (int i = 0; i < SIZE; ++i) {
#pragma unroll
        for (int j = 0; j < SIZE; ++j) sum[i][j] += of_a[i] * of_b[j];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int i = 0; i < SIZE; ++i) {
    const long to = row + ty + i * SIDE;
#pragma unroll
    for (int j = 0; j < SIZE; ++j) {
      const long at = col + tx + j * SIDE;
      if (to < m && at < n) put(c, c0, to * n + at, alpha, sum[i][j], beta);
    }
  }
}

// A matrix of a batch may begin anywhere, so the address itself decides.
#define IS_ALIGNED(p) ((size_t)(p) % 16 == 0)

// Four neighbours along k of row i, or along the other axis at depth p, the way the operand lies:
// in one access of 16 bytes where they are all there and aligned to it.
float4 four_of(__global const float* x, long i, long p, long length, long k, long row, long col) {
  const long at = i * row + p * col;
  const bool along_k = col == 1;
  if (IS_ALIGNED(x + at) && (along_k ? i < length && p + 4 <= k : i + 4 <= length && p < k)) {
    return *(__global const float4*)(x + at);
  }
  float part[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const long there = along_k ? i : i + e, deep = along_k ? p + e : p;
    part[e] = there < length && deep < k ? x[there * row + deep * col] : 0.0f;
  }
  return (float4)(part[0], part[1], part[2], part[3]);
}

// DEPTH×TILE of an operand into local memory; `i` runs along m of a, along n of b.
void copy_tile(__local float* to, __global const float* x, long i, long p, long length, long k,
               long row, long col) {
  for (int at = get_local_id(0); at < DEPTH * TILE / 4; at += ITEMS) {
    if (col == 1) {
      const int deep = at % (DEPTH / 4) * 4, wide = at / (DEPTH / 4);
      const float4 part = four_of(x, i + wide, p + deep, length, k, row, col);
      to[deep * TILE + wide] = part.x;
      to[(deep + 1) * TILE + wide] = part.y;
      to[(deep + 2) * TILE + wide] = part.z;
      to[(deep + 3) * TILE + wide] = part.w;
    } else {
      const int deep = at / (TILE / 4), wide = at % (TILE / 4) * 4;
      const float4 part = four_of(x, i + wide, p + deep, length, k, row, col);
      *(__local float4*)(to + deep * TILE + wide) = part;
    }
  }
}

// Step 3. All accesses, global and local, are of 16 bytes: an item's rows and columns lie in fours,
// so that a step along k takes 4 loads from local memory instead of 16.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_vectors(OPERANDS) {
  __local float as[DEPTH * TILE] __attribute__((aligned(16)));
  __local float bs[DEPTH * TILE] __attribute__((aligned(16)));
  FIND_TILE(TILE, TILE)
  float4 sum[SIZE][SIZE / 4];
#pragma unroll
  for (int i = 0; i < SIZE; ++i) sum[i][0] = sum[i][1] = 0.0f;
  for (long first = 0; first < k; first += DEPTH) {
    copy_tile(as, a, row, first, m, k, a_row, a_col);
    copy_tile(bs, b, col, first, n, k, b_col, b_row);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int p = 0; p < DEPTH; ++p) {
      __local const float4* of_a = (__local const float4*)(as + p * TILE);
      __local const float4* of_b = (__local const float4*)(bs + p * TILE);
      const float4 low = of_a[ty], high = of_a[SIDE + ty];
      const float factors[SIZE] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      const float4 left = of_b[tx], right = of_b[SIDE + tx];
#pragma unroll
      for (int i = 0; i < SIZE; ++i) {
        sum[i][0] += factors[i] * left;
        sum[i][1] += factors[i] * right;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int i = 0; i < SIZE; ++i) {
    const long to = row + i / 4 * (TILE / 2) + ty * 4 + i % 4;
    if (to >= m) continue;
#pragma unroll
    for (int half_of = 0; half_of < 2; ++half_of) {
      const long at = to * n + col + half_of * (TILE / 2) + tx * 4;
      const long left = n - col - half_of * (TILE / 2) - tx * 4;
      const float4 result = sum[i][half_of];
      if (left >= 4 && IS_ALIGNED(c + at)) {
        float4 all = alpha * result;
        if (beta != 0) all += beta * *(__global const float4*)(c0 + at);
        *(__global float4*)(c + at) = all;
      } else {
        if (left > 0) put(c, c0, at, alpha, result.x, beta);
        if (left > 1) put(c, c0, at + 1, alpha, result.y, beta);
        if (left > 2) put(c, c0, at + 2, alpha, result.z, beta);
        if (left > 3) put(c, c0, at + 3, alpha, result.w, beta);
      }
    }
  }
}
