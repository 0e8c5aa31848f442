// c = op(a)·op(b) for operands of any number format, on any device: tiles of a and b are decoded into
// local memory and multiplied as float32, or integers as int32. A_TYPE and B_TYPE are formats of
// gemm_output.cl, which also says what follows the product.
//
// A group of WX × WY items owns BM × BN elements of c; an item MT × NT micro-tiles of TM rows × TV vectors
// of four columns, whose sums it takes into registers one after the other.
// GATE=1: a second tile of b, `up`, beside the first, `gate`.

#define BM (MT * WY * TM)
#define BN (NT * WX * TV * 4)
#define ITEMS (WX * WY)
#define LDA (BM + 4)
#define LDB (BN * (1 + GATE))

// Bytes of a block of 32 along k.
#define BLOCK_BYTES (B_TYPE == Q8_0 ? 34 : B_TYPE == Q4_0 ? 18 : 20)
#define HALF_AT(p) float_of_half((ushort)((p)[0] | (p)[1] << 8))

#if A_TYPE == F32
typedef float a_element;
#elif A_TYPE == F16 || A_TYPE == BF16
typedef ushort a_element;
#elif A_TYPE == S8
typedef char a_element;
#else
typedef uchar a_element;
#endif
#if B_TYPE == F32
typedef float b_element;
#elif B_TYPE == F16 || B_TYPE == BF16
typedef ushort b_element;
#elif B_TYPE == S8 || B_TYPE == S8C
typedef char b_element;
#else
typedef uchar b_element;
#endif

#define DECODE(TYPE, x)                    \
  ((TYPE) == F16 ? float_of_half((ushort)(x)) : (TYPE) == BF16 ? float_of_bfloat((ushort)(x)) : (x))

#if B_TYPE == Q8_0 || B_TYPE == Q4_0 || B_TYPE == Q4_1
// Step p of k of a column, whose blocks begin at `column`.
float number_of_b(__global const uchar* column, int p) {
  __global const uchar* block = column + p / 32 * BLOCK_BYTES;
  const float scale = HALF_AT(block);
  const int i = p % 32;
#if B_TYPE == Q8_0
  return scale * as_char(block[2 + i]);
#else
  // Element i and i + 16 share a byte.
  __global const uchar* nibbles = block + (B_TYPE == Q4_0 ? 2 : 4);
  const int nibble = nibbles[i % 16] >> i / 16 * 4 & 15;
  return B_TYPE == Q4_0 ? scale * (nibble - 8) : fma(scale, (float)nibble, HALF_AT(block + 2));
#endif
}
#define B_COLUMN(col) (b + (long)(col) * (k / 32) * BLOCK_BYTES)
#define B_NUMBER(col, p) number_of_b(B_COLUMN(col), p)
#else
#define B_NUMBER(col, p) DECODE(B_TYPE, b[(long)(col)*b_outer + (long)(p)*b_inner])
#endif

// Distances in elements: a_outer, b_outer of neighbours along m and n, a_inner, b_inner along k. b_cols:
// columns of b, twice n with GATE. b_scale: of each column of s8c. k = 0 reads neither a nor b.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_formats(
    __global const a_element* restrict a, __global const b_element* restrict b,
    __global const float* restrict b_scale, int m, int n, int k, int a_outer, int a_inner,
    int b_outer, int b_inner, long a_batch, long b_batch, int row_tiles, int col_tiles OUTPUT_ARGS) {
  __local number a_tile[BK * LDA] __attribute__((aligned(64)));
  __local number b_tile[BK * LDB] __attribute__((aligned(64)));
  const int lid = get_local_id(0);
  const int lx = lid % WX;
  const int ly = lid / WX;
  const int row0 = get_group_id(0) % row_tiles * BM;
  const int col0 = get_group_id(0) / row_tiles % col_tiles * BN;
  const long batch = get_group_id(0) / row_tiles / col_tiles;
  a += batch * a_batch;
  b += batch * b_batch;

  number4 sum[1 + GATE][MT][NT][TM][TV];
  for (int product = 0; product <= GATE; ++product)
    for (int mi = 0; mi < MT; ++mi)
      for (int ni = 0; ni < NT; ++ni)
        for (int i = 0; i < TM; ++i)
          for (int j = 0; j < TV; ++j) sum[product][mi][ni][i][j] = (number4)(0);

  for (int p0 = 0; p0 < k; p0 += BK) {
    for (int at = lid; at < BM * BK; at += ITEMS) {
      const int row = a_inner == 1 ? at / BK : at % BM;
      const int p = a_inner == 1 ? at % BK : at / BM;
      a_tile[p * LDA + row] =
          row0 + row < m && p0 + p < k
              ? DECODE(A_TYPE, a[(long)(row0 + row) * a_outer + (long)(p0 + p) * a_inner]) : 0;
    }
    for (int at = lid; at < BN * (1 + GATE) * BK; at += ITEMS) {
      const int place = b_inner == 1 ? at / BK : at % LDB;
      const int p = b_inner == 1 ? at % BK : at / LDB;
      const int col = col0 + place % BN;
      number x = 0;
      if (col < n && p0 + p < k) {
        x = B_NUMBER(col + place / BN * n, p0 + p);
#if B_TYPE == S8C
        x *= b_scale[col];
#endif
      }
      b_tile[p * LDB + place] = x;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int product = 0; product <= GATE; ++product)
      for (int ni = 0; ni < NT; ++ni)
        for (int mi = 0; mi < MT; ++mi) {
          number4 part[TM][TV];
#pragma unroll
          for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TV; ++j) part[i][j] = sum[product][mi][ni][i][j];
          __local const number* x = a_tile + (mi * WY + ly) * TM;
          __local const number* y = b_tile + product * BN + (ni * WX + lx) * (TV * 4);
          for (int p = 0; p < BK; ++p, x += LDA, y += LDB) {
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
              for (int j = 0; j < TV; ++j)
                part[i][j] += x[i] * *(__local const number4*)(y + j * 4);
          }
#pragma unroll
          for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TV; ++j) sum[product][mi][ni][i][j] = part[i][j];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  c += batch * m * n;
  c0 += batch * m * n;
  residual += batch * m * n;
  for (int mi = 0; mi < MT; ++mi)
    for (int ni = 0; ni < NT; ++ni)
      for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TV; ++j) {
          const int row = row0 + (mi * WY + ly) * TM + i;
          const int col = col0 + ((ni * WX + lx) * TV + j) * 4;
          if (row >= m) continue;
          const long at = (long)row * n + col;
#if GATE
          put_four(gated(sum[0][mi][ni][i][j], sum[1][mi][ni][i][j]), at, col, n - col, OUTPUT);
#else
          put_four(sum[0][mi][ni][i][j], at, col, n - col, OUTPUT);
#endif
        }
}
