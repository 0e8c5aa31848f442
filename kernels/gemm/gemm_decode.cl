// Elements of a and b in memory, of any number format (A_TYPE and B_TYPE are formats of gemm_output.cl),
// and what they are decoded to before they are multiplied: float32, or int32 for integers.

typedef ELEMENT(A_TYPE) a_element;
typedef ELEMENT(B_TYPE) b_element;

#define DECODE(TYPE, x) \
  ((TYPE) == F16 ? float_of_half((ushort)(x)) : (TYPE) == BF16 ? float_of_bfloat((ushort)(x)) : (x))

// Blocks of 32 along k with contiguous columns: scale, for q4_1 a minimum, integers.
#define IN_BLOCKS (B_TYPE == Q8_0 || B_TYPE == Q4_0 || B_TYPE == Q4_1)
#if IN_BLOCKS
#define BLOCK_BYTES (B_TYPE == Q8_0 ? 34 : B_TYPE == Q4_0 ? 18 : 20)
#define HALF_AT(p) float_of_half((ushort)((p)[0] | (p)[1] << 8))
// Step p of k of the column with blocks from `column` on.
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
#define B_ELEMENTS(columns, k) ((long)(columns) * ((k) / 32) * BLOCK_BYTES)
#else
#define B_ELEMENTS(columns, k) ((long)(columns) * (k))
#endif
