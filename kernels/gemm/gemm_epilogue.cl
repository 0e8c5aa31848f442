// What follows a product before it becomes c (kernels/gemm/epilogue.hpp). CHAIN is the chain as a
// number to the base 9: its functions counted from 1 are the digits, the first the lowest, and the
// compiler unrolls the loop over them; 0: none, and nothing of this is in the kernel. HAS_BIAS,
// HAS_ADD, SLOPE, LOW and HIGH belong to it; opencl.cpp asserts the base and the numbers.
#if CHAIN
floatv epilogue(floatv v, floatv bias, floatv residual) {
#pragma unroll
  for (uint left = CHAIN; left > 0; left /= 9) {
    const uint f = left % 9;
    v = f == 1   ? v + bias
        : f == 2 ? relu(v)
        : f == 3 ? (v < 0.0f ? v * (SLOPE) : v)
        : f == 4 ? gelu(v)
        : f == 5 ? gelu_tanh(v)
        : f == 6 ? silu(v)
        : f == 7 ? v + residual
                 : (v < (LOW) ? (floatv)(LOW) : v > (HIGH) ? (floatv)(HIGH) : v);  // a NaN stays
  }
  return v;
}
float epilogue_one(float v, float bias, float residual) {
  float lane[V];
  const floatv result = epilogue((floatv)v, (floatv)bias, (floatv)residual);
  VSTORE(result, lane);
  return lane[0];
}
#endif
