// Fragments of matrix units with short operands (mma.sync), loaded by ldmatrix: float16 and bfloat16
// with float32 sums, 8-bit integers with int32 sums. TYPE is a's format. tf32: code_paths.cl.
// LOAD_MATRICES(WIDE, x, tile, PLACE, i, s): x[WARP_LANES][4] becomes four 8×8 matrices of 16-bit
// elements; PLACE(lane, i, s) is where lane `lane` finds its row of 16 bytes, TRANSPOSED or STRAIGHT.

#if CODE_PATH == 1
#define LOAD_MATRICES(WIDE, x, tile, PLACE, i, s)                                               \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" WIDE ".shared.b16 {%0,%1,%2,%3}, [%4];"          \
               : "=r"((x)[0][0]), "=r"((x)[0][1]), "=r"((x)[0][2]), "=r"((x)[0][3])             \
               : "r"(LOCAL_ADDRESS((tile) + PLACE(lane, i, s))) : "memory")
#define STRAIGHT ""
#define TRANSPOSED ".trans"
#if TYPE == F16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#elif TYPE == BF16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#elif TYPE == S8
#define MMA "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
#else
#define MMA "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32"
#endif
#if TYPE == S8 || TYPE == U8
#define SUM_REGISTER "+r"
#else
#define SUM_REGISTER "+f"
#endif
// sum += a·b; b's fragment is registers 2h and 2h + 1 of a pair.
#define MULTIPLY(sum, a, b, h)                                                                  \
  asm volatile(MMA " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                     \
               : SUM_REGISTER((sum)[0][0]), SUM_REGISTER((sum)[0][1]),                          \
                 SUM_REGISTER((sum)[0][2]), SUM_REGISTER((sum)[0][3])                           \
               : "r"((a)[0][0]), "r"((a)[0][1]), "r"((a)[0][2]), "r"((a)[0][3]),                \
                 "r"((b)[0][2 * (h)]), "r"((b)[0][2 * (h) + 1]))
#else
#define STRAIGHT 0
#define TRANSPOSED 1
#if TYPE == S8 || TYPE == U8
typedef int unit_sum;
#define OF_REGISTER 4  // elements
#else
typedef float unit_sum;
#define OF_REGISTER 2
#endif
#define LOAD_MATRICES(WIDE, x, tile, PLACE, i, s)                                               \
  {                                                                                             \
    int places[32];                                                                             \
    for (int u = 0; u < 32; ++u) places[u] = PLACE(u, i, s);                                    \
    load_matrices(x, tile, places, WIDE);                                                       \
  }
// Row r of matrix i begins at places[8i + r]. Lane l gets columns 2·(l mod 4) and the next one of its row
// l/4; transposed: those rows of its column l/4.
void load_matrices(uint (*x)[4], __local const uchar* tile, const int* places, bool transposed) {
  for (int l = 0; l < 32; ++l) {
    for (int i = 0; i < 4; ++i) {
      if (transposed) {
        const uint low = *(__local const ushort*)(tile + places[8 * i + l % 4 * 2] + l / 4 * 2);
        const uint high = *(__local const ushort*)(tile + places[8 * i + l % 4 * 2 + 1] + l / 4 * 2);
        x[l][i] = low | high << 16;
      } else {
        x[l][i] = *(__local const uint*)(tile + places[8 * i + l / 4] + l % 4 * 4);
      }
    }
  }
}
// Element t of a register.
unit_sum element_of(uint x, int t, bool is_a) {
#if TYPE == F16
  return float_of_half((ushort)(x >> 16 * t));
#elif TYPE == BF16
  return float_of_bfloat((ushort)(x >> 16 * t));
#else
  const uchar bits = (uchar)(x >> 8 * t);
  return TYPE == U8 && is_a ? (int)bits : (int)as_char(bits);
#endif
}
// Lane 4g + q holds of a (g, q), (g+8, q), (g, q+4), (g+8, q+4), of b (q, g), (q+4, g), where k counts
// registers; of the sum (g, 2q), (g, 2q+1), (g+8, 2q), (g+8, 2q+1), each (row, column).
void MULTIPLY(unit_sum (*sum)[4], uint (*a)[4], uint (*b)[4], int h) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int col = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 8; ++k) {
        const uint x = a[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2];
        const uint y = b[col * 4 + k % 4][2 * h + k / 4];
        for (int t = 0; t < OF_REGISTER; ++t) {
          sum[lane][i] += element_of(x, t, true) * element_of(y, t, false);
        }
      }
    }
  }
}
#endif
