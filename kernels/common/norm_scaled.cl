// Put before the kernels of LayerNorm and RMSNorm (norm.cl, norm_once.cl). CENTRED=1, LayerNorm,
// subtracts the mean and adds beta. Here are a row's mean and scale, and how they are computed again
// where the squares leave float32: scaled by a power of two, by every item alone.

#if CENTRED
#define BETA_PARAM(TYPE) __global const TYPE* restrict beta,
#else
#define BETA_PARAM(TYPE)
#endif

// y = ((x·down - mean.x) - mean.y)·scale·gamma + beta.
typedef struct {
  float down;
  float2 mean;
  float scale;
} Moments;

// The quotient as two floats, because results near the mean are only as good as the mean itself; n is
// rounded to a float once, for both.
float2 mean_of(float2 total, float n) {
  const float high = (total.x + total.y) / n;
  return (float2)(high, (fma(-high, n, total.x) + total.y) / n);
}

// The square of a number below 2^-63 is subnormal. Beside a mean square of 2^-96 that loss is below
// the roundings. `spread` is the mean square with eps.
bool is_in_range(float spread) { return spread >= 0x1p-96f && spread < INFINITY; }

// The largest magnitude, or the root of eps, becomes 4 to 8; that of subnormal numbers at least 2^-29.
Moments scaled_moments(__global const element* x, long cols, float eps_root) {
  float largest = eps_root;
  for (long j = 0; j < cols; ++j) largest = fmax(largest, fabs(LOAD_ONE(x, j)));
  Moments m;
  m.down = ldexp(1.0f, largest < INFINITY && largest > 0.0f ? clamp(2 - ilogb(largest), -125, 120) : 0);
  m.mean = 0.0f;
  float2 sum = 0.0f;
#if CENTRED
  for (long j = 0; j < cols; ++j) sum = add_pairs(sum, (float2)(LOAD_ONE(x, j) * m.down, 0.0f));
  m.mean = mean_of(sum, (float)cols);
  sum = 0.0f;
#endif
  for (long j = 0; j < cols; ++j) {
    const float apart = (LOAD_ONE(x, j) * m.down - m.mean.x) - m.mean.y;
    sum = add_pairs(sum, (float2)(apart * apart, 0.0f));
  }
  // What an infinity rounds off is NaN. An eps may vanish beside the row, but not where that is constant.
  const float squares = isinf(sum.x) ? sum.x : sum.x + sum.y;
  const float root = eps_root * m.down;
  const float eps = eps_root > 0.0f ? fmax(root * root, FLT_MIN) : 0.0f;
  m.scale = 1.0f / sqrt(squares / (float)cols + eps);
  return m;
}
