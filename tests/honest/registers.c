/* AVX-512, rows of up to 128 elements whole in registers: x is read once and y written once. */
#include <math.h>
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>

enum { LANES = 16, MOST = 8 };

/* exp(x) = 2^n · p(r), r = x - n·ln 2 of at most half a ln 2; below -104 the result is zero. */
static inline __m512 exp16(__m512 x) {
  const __m512 clamped = _mm512_max_ps(_mm512_set1_ps(-104), x); /* NaN stays */
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504F)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752F), clamped);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6F), r);
  static const float factors[] = {0.04189033F, 0.16667115F, 0.4999923F, 1, 1};
  __m512 p = _mm512_set1_ps(0.0083125F);
  for (int i = 0; i < 5; ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(factors[i]));
  return _mm512_scalef_ps(p, n);
}

/* `count` rows, 1 or 2, of `vectors` vectors, the last of them masked: all loops are unrolled,
 * since both are constants wherever this is inlined, and two rows hide each other's latencies.
 * Unused lanes compute exp(0): exp(-inf) would underflow, which takes an Intel core 150 cycles. */
static inline __attribute__((always_inline)) void in_registers(int count, int vectors,
                                                               __mmask16 last, const float* x,
                                                               float* y, int64_t cols) {
  const __m512 nothing = _mm512_set1_ps(-INFINITY);
  __m512 row[2][MOST], top[2], factor[2];
  for (int r = 0; r < count; ++r) {
    const float* from = x + r * cols;
    for (int i = 0; i < vectors - 1; ++i) row[r][i] = _mm512_loadu_ps(from + i * LANES);
    row[r][vectors - 1] = _mm512_mask_loadu_ps(nothing, last, from + (vectors - 1) * LANES);
    __m512 most = row[r][0];
    for (int i = 1; i < vectors; ++i) most = _mm512_max_ps(most, row[r][i]);
    top[r] = _mm512_set1_ps(_mm512_reduce_max_ps(most));
  }
  for (int r = 0; r < count; ++r) {
    __m512 sums = _mm512_setzero_ps();
    for (int i = 0; i < vectors - 1; ++i) {
      row[r][i] = exp16(_mm512_sub_ps(row[r][i], top[r]));
      sums = _mm512_add_ps(sums, row[r][i]);
    }
    const __m512 e = exp16(_mm512_maskz_sub_ps(last, row[r][vectors - 1], top[r]));
    row[r][vectors - 1] = e;
    sums = _mm512_mask_add_ps(sums, last, sums, e);
    factor[r] = _mm512_set1_ps(1 / _mm512_reduce_add_ps(sums));
  }
  for (int r = 0; r < count; ++r) {
    float* to = y + r * cols;
    for (int i = 0; i < vectors - 1; ++i) {
      _mm512_storeu_ps(to + i * LANES, _mm512_mul_ps(row[r][i], factor[r]));
    }
    _mm512_mask_storeu_ps(to + (vectors - 1) * LANES, last,
                          _mm512_mul_ps(row[r][vectors - 1], factor[r]));
  }
}

static inline __attribute__((always_inline)) void short_rows(int vectors, __mmask16 last,
                                                             const float* x, float* y, int64_t rows,
                                                             int64_t cols) {
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) in_registers(2, vectors, last, x + r * cols, y + r * cols, cols);
  if (r < rows) in_registers(1, vectors, last, x + r * cols, y + r * cols, cols);
}

static void long_row(const float* x, float* y, int64_t cols) {
  enum { STEP = 4 * LANES };
  const int64_t whole = cols / STEP * STEP;
  const __m512 nothing = _mm512_set1_ps(-INFINITY);
  __m512 most[4] = {nothing, nothing, nothing, nothing};
  for (int64_t i = 0; i < whole; i += STEP) {
    for (int j = 0; j < 4; ++j)
      most[j] = _mm512_max_ps(most[j], _mm512_loadu_ps(x + i + j * LANES));
  }
  for (int64_t i = whole; i < cols; i += LANES) {
    const __mmask16 mask = (__mmask16)(cols - i < LANES ? (1U << (cols - i)) - 1 : 0xffff);
    most[0] = _mm512_max_ps(most[0], _mm512_mask_loadu_ps(nothing, mask, x + i));
  }
  const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(
      _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3]))));
  const __m512 zero = _mm512_setzero_ps();
  __m512 sums[4] = {zero, zero, zero, zero};
  for (int64_t i = 0; i < whole; i += STEP) {
    for (int j = 0; j < 4; ++j) {
      const __m512 e = exp16(_mm512_sub_ps(_mm512_loadu_ps(x + i + j * LANES), top));
      _mm512_storeu_ps(y + i + j * LANES, e);
      sums[j] = _mm512_add_ps(sums[j], e);
    }
  }
  for (int64_t i = whole; i < cols; i += LANES) {
    const __mmask16 mask = (__mmask16)(cols - i < LANES ? (1U << (cols - i)) - 1 : 0xffff);
    const __m512 e = exp16(_mm512_maskz_sub_ps(mask, _mm512_maskz_loadu_ps(mask, x + i), top));
    _mm512_mask_storeu_ps(y + i, mask, e);
    sums[0] = _mm512_mask_add_ps(sums[0], mask, sums[0], e);
  }
  const float factor = 1 / _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]),
                                                              _mm512_add_ps(sums[2], sums[3])));
  for (int64_t i = 0; i < cols; ++i) y[i] *= factor;
}

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  const int64_t vectors = (cols + LANES - 1) / LANES;
  const __mmask16 last = (__mmask16)((1U << (cols - (vectors - 1) * LANES)) - 1);
  switch (vectors) {
    case 1:
      short_rows(1, last, x, y, rows, cols);
      return;
    case 2:
      short_rows(2, last, x, y, rows, cols);
      return;
    case 3:
      short_rows(3, last, x, y, rows, cols);
      return;
    case 4:
      short_rows(4, last, x, y, rows, cols);
      return;
    case 5:
      short_rows(5, last, x, y, rows, cols);
      return;
    case 6:
      short_rows(6, last, x, y, rows, cols);
      return;
    case 7:
      short_rows(7, last, x, y, rows, cols);
      return;
    case 8:
      short_rows(8, last, x, y, rows, cols);
      return;
    default:
      break;
  }
  for (int64_t r = 0; r < rows; ++r) long_row(x + r * cols, y + r * cols, cols);
}
#else
void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
  }
}
#endif
