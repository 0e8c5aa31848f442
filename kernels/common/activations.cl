// Activation functions of floatv. erf and tanh by the quotients of kernels/common/activation-inl.h
// and tanh-inl.h, where they are derived: OpenCL allows its own an error of 16 and 5 ULP.

// NaN where x is.
floatv relu(floatv x) { return x < 0.0f ? (floatv)0.0f : x; }

// x·exp(-|t|) / (1 + exp(-|t|)) where t is negative, else x / (1 + exp(-|t|)).
floatv times_sigmoid(floatv x, floatv t) {
  const floatv e = exp(-fabs(t));
  return (t < 0.0f ? x * e : x) / (1.0f + e);
}

// The magnitudes are bounded by comparisons, which leave a NaN alone.
floatv gelu(floatv x) {
  const floatv high = fabs(x);
  const floatv m = high > 5.75f ? (floatv)5.75f : high;
  const floatv z = m * m;
  floatv p = z * 2.27159269e-8f + 6.28350426e-6f;
  p = p * z + 1.65250705e-4f;
  p = p * z + 4.65528201e-3f;
  p = p * z + 3.35489027e-2f;
  p = p * z + 3.98942292e-1f;
  floatv q = z * 1.19141362e-6f + 7.22647019e-5f;
  q = q * z + 1.86458288e-3f;
  q = q * z + 2.84631904e-2f;
  q = q * z + 2.50761092e-1f;
  q = q * z + 1.0f;
  const floatv ratio = m * p / q;
  return x * (0.5f + copysign(ratio > 0.5f ? (floatv)0.5f : ratio, x));
}

floatv gelu_tanh(floatv x) { return times_sigmoid(x, x * (x * x * 0.0713548163f + 1.59576912f)); }

floatv silu(floatv x) { return times_sigmoid(x, x); }
