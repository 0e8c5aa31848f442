// What follows a product before it becomes c (kernels/gemm/epilogue.hpp). CHAIN is the chain as a
// number to the base 9: its functions counted from 1 are the digits, the first the lowest, and the
// compiler unrolls the loop over them; 0: none, and nothing of this is in the kernel. HAS_BIAS,
// HAS_ADD, SLOPE, LOW and HIGH belong to it; opencl.cpp asserts the base and the cases.
#ifndef CHAIN
#define CHAIN 0
#endif

#if CHAIN
floatv epilogue(floatv v, floatv bias, floatv residual) {
#pragma unroll
  for (uint left = CHAIN; left > 0; left /= 9) {
    switch (left % 9) {
      case 1:
        v += bias;
        break;
      case 2:
        v = relu(v);
        break;
      case 3:
        v = v < 0.0f ? v * (SLOPE) : v;
        break;
      case 4:
        v = gelu(v);
        break;
      case 5:
        v = gelu_tanh(v);
        break;
      case 6:
        v = silu(v);
        break;
      case 7:
        v += residual;
        break;
      case 8:
        // A NaN stays.
        v = v < (LOW) ? (floatv)(LOW) : v > (HIGH) ? (floatv)(HIGH) : v;
        break;
    }
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
