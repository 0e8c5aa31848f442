// Fragments of gemm_tensor.cl: where tiles have them in local memory, and loading them (matrix_units.cl). Lane 4g + q
// holds of a, 16 rows × 32 bytes of k in four registers, (g, q), (g+8, q), (g, q+4), (g+8, q+4), where k
// counts registers; of two fragments of b, 16 columns, (q, g), (q+4, g), (q, g+8), (q+4, g+8); of a
// sum (g, 2q), (g, 2q+1), (g+8, 2q), (g+8, 2q+1), each (row, column).
//
// Tiles, where loads meet no bank conflicts:
//   deep (rows along k): rows of 128 bytes of k; piece q (16 bytes) of row r is at place q XOR r mod 8.
//   ldmatrix reads 8 rows of a piece at a time.
//   wide (rows along m or n; not 8-bit integers): a row per step of k. Pieces of 16-bit formats are
//   swapped by the step mod 8, and ldmatrix.trans transposes; those of float32 by twice the step mod 4, and
//   lanes load words.

#if CODE_PATH == 1
#define ITEMS (32 * WM * WN)
#else
#define ITEMS (WM * WN)
#endif
#define PIECES (ROW / 16)
#define A_BYTES (BM * ROW)
#define DEEP_PLACE(row, piece) ((row) * ROW + ((piece) ^ ((row) & 7)) * 16)
#define WIDE_PLACE(step, piece, R) \
  ((step) * (R) * BYTES + ((piece) ^ (BYTES == 4 ? (step) % 4 * 2 : (step) & 7)) * 16)
#define WORD_PLACE(step, row, R) (WIDE_PLACE(step, (row) / 4, R) + (row) % 4 * 4)

// Where lane `lane` finds its row of the four 8×8 matrices of fragment i of a, or of fragments 2i and 2i + 1
// of b, at step s. A fragment of a: rows, then k; of b: k, then columns.
#define A_ROW(i) (WARP_ROW + 16 * (i))
#define B_COL(i) (WARP_COL + 16 * (i))
#if A_WIDE
#define A_PLACE(lane, i, s) \
  WIDE_PLACE(16 * (s) + (lane) % 8 + (lane) / 16 * 8, A_ROW(i) / 8 + (lane) / 8 % 2, BM)
#else
#define A_PLACE(lane, i, s) DEEP_PLACE(A_ROW(i) + (lane) % 16, 2 * (s) + (lane) / 16)
#endif
#if B_WIDE
#define B_PLACE(lane, i, s) WIDE_PLACE(16 * (s) + (lane) % 16, B_COL(i) / 8 + (lane) / 16, BN)
#else
#define B_PLACE(lane, i, s) \
  DEEP_PLACE(B_COL(i) + (lane) % 8 + (lane) / 16 * 8, 2 * (s) + (lane) / 8 % 2)
#endif
#define LOCAL_ID ((int)get_local_id(0) & (ITEMS - 1))
#define WARP_ROW (WARP_OF(LOCAL_ID) / WN * (MT * 16))
#define WARP_COL (WARP_OF(LOCAL_ID) % WN * (NT * 8))

// Fragment i of a, or fragments 2i and 2i + 1 of b, at step s of a tile. Words of float32 lie at (STEP,
// ROW_) where an operand is wide.
#define LOAD_FRAGMENT(x, WIDE, tile, PLACE, STEP, ROW_, R)                                      \
  {                                                                                             \
    const int lane = LANE_OF(LOCAL_ID, 0);                                                      \
    if ((WIDE) && BYTES == 4) {                                                                 \
      EACH_LANE(l) EVERY(r, 4) {                                                                \
        const int g = LANE_OF(LOCAL_ID, l) / 4, q = LANE_OF(LOCAL_ID, l) % 4;                   \
        (x)[l][r] = *(__local const uint*)((tile) + WORD_PLACE(STEP, ROW_, R));                 \
      }                                                                                         \
    } else if (WIDE) {                                                                          \
      LOAD_MATRICES(TRANSPOSED, x, tile, PLACE, i, s);                                          \
    } else {                                                                                    \
      LOAD_MATRICES(STRAIGHT, x, tile, PLACE, i, s);                                            \
    }                                                                                           \
  }
INLINED void load_a(uint (*x)[4], __local const uchar* tile, int i, int s) {
  LOAD_FRAGMENT(x, A_WIDE, tile, A_PLACE, 8 * s + q + r / 2 * 4, A_ROW(i) + g + r % 2 * 8, BM)
}
INLINED void load_b(uint (*y)[4], __local const uchar* tile, int i, int s) {
  LOAD_FRAGMENT(y, B_WIDE, tile + A_BYTES, B_PLACE, 8 * s + q + r % 2 * 4,
                B_COL(i) + g + r / 2 * 8, BN)
}

#if TYPE == F32
// The parts of fragment i of a, and of fragments 2i and 2i + 1 of b. The small parts of a packed operand lie
// two steps farther on.
#if PACKED
#define PARTS_OF(big, small, x, l, r) big = as_float(x[0][l][r]), small = as_float(x[PACKED][l][r]);
#else
#define PARTS_OF(big, small, x, l, r) SPLIT_TF32(big, small, as_float(x[0][l][r]) * UPSCALE)
#endif
#define LOAD_PARTS(LOAD, tile, i, s, BIG, SMALL)                     \
  uint x[1 + PACKED][WARP_LANES][4];                                 \
  EVERY(part, 1 + PACKED) LOAD(x[part], tile, i, s + 2 * part);      \
  EACH_LANE(l) EVERY(r, 4) PARTS_OF(BIG, SMALL, x, l, r)
INLINED void load_parts_a(float (*big)[4], float (*small)[4], __local const uchar* tile, int i,
                          int s) {
  LOAD_PARTS(load_a, tile, i, s, big[l][r], small[l][r])
}
INLINED void load_parts_b(float (*big)[WARP_LANES][2], float (*small)[WARP_LANES][2],
                          __local const uchar* tile, int i, int s) {
  LOAD_PARTS(load_b, tile, i, s, big[r / 2][l][r % 2], small[r / 2][l][r % 2])
}
#endif
