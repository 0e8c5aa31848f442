/* AVX2 where the compiler has it: exp(x) = 2^n · p(r), with r = x - n·ln 2 of at most half a ln
 * 2 and p the Taylor polynomial of degree 7; its remainder there is below 2^-27. */
#include <math.h>
#include <stdint.h>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

static __m256 exp8(__m256 x) {
  /* Below the least argument, -88, the result is zero; NaN stays, being the second operand. */
  const __m256 least = _mm256_set1_ps(-87.3F);
  const __m256 is_zero = _mm256_cmp_ps(x, least, _CMP_LT_OQ);
  const __m256 clamped = _mm256_max_ps(least, x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), clamped);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  static const float factors[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1, 1};
  __m256 p = _mm256_set1_ps(1.0F / 5040);
  for (int i = 0; i < 7; ++i) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(factors[i]));
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(is_zero, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

static float sum8(__m256 v) {
  float lanes[8], sum = 0;
  _mm256_storeu_ps(lanes, v);
  for (int i = 0; i < 8; ++i) sum += lanes[i];
  return sum;
}

static void softmax_row(const float* x, float* y, int64_t cols) {
  const int64_t whole = cols / 8 * 8;
  float most = -INFINITY;
  for (int64_t i = 0; i < cols; ++i) most = x[i] > most ? x[i] : most;
  const __m256 top = _mm256_set1_ps(most);
  __m256 sums = _mm256_setzero_ps();
  for (int64_t i = 0; i < whole; i += 8) {
    const __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), top));
    sums = _mm256_add_ps(sums, e);
    _mm256_storeu_ps(y + i, e);
  }
  float sum = sum8(sums);
  for (int64_t i = whole; i < cols; ++i) sum += y[i] = expf(x[i] - most);
  const float factor = 1 / sum;
  for (int64_t i = 0; i < cols; ++i) y[i] *= factor;
}
#else
static void softmax_row(const float* x, float* y, int64_t cols) {
  float most = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[i]);
  for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
  for (int64_t i = 0; i < cols; ++i) y[i] = (float)(y[i] / sum);
}
#endif

void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) softmax_row(x + r * cols, y + r * cols, cols);
}
