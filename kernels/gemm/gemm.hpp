// GEMM: the problem, its maths, tensors, cost and error bound. No code of any variant is here.
// Next: reference.cpp (double precision), then scalar.cpp, blas.cpp, hwy.cpp, opencl.cpp.
//
//   c = epilogue(alpha · op(a) · op(b) + beta · c0)        for each of `batch` matrices
//
// epilogue: functions of an element, none by default; with gate=1 b has 2n columns and c =
// silu(a·gate)·(a·up). What there is, in which order, with which operands: epilogue.hpp.
//
// Tensors (row-major, of a_type, b_type, c_type; last axis contiguous, leading axes of any stride):
//   a   [batch,m,k], with trans_a=1 [batch,k,m]; op(a) is [m,k]
//   b   [batch,k,n], with trans_b=1 [batch,n,k]; op(b) is [k,n]; constant when prepack=1
//   c0  [batch,m,n], only when beta is not 0
//   bias [n], float32, and residual [batch,m,n], of c's type, only where the epilogue has them
//   c   [batch,m,n], the output; overlaps no input
//   b_scale [n], float32, only when b is s8c: op(b)(p,j) is then its integer times b_scale[j];
//       constant when prepack=1
// Number formats: a, b and c float32, float16 or bfloat16 each; b also int8 per channel (s8c) or in
// GGUF's blocks along k (q8_0, q4_0, q4_1: trans_b=1, k a multiple of 32), decoded to real numbers:
// "weight-only". Integers: a s8 or u8, b s8, c s32 with alpha=1 and beta=0, math int8.
// Maths: fp32; bf16 and f16, with products of that type; int8; int8-dynamic: a run scales each row
// of op(a), or each 32 elements of a row if b has blocks, by max|a|/127 and multiplies the rounded
// quotients by b's integers; a row that is not finite gives NaN.
// Values: alpha = 0 or k = 0: a and b are not read, c = beta·c0. beta = 0: there is no c0, c = 0 +
// … and what c held before has no influence. Any size may be 0; an empty c is a success. The
// epilogue is applied to beta·c0 too.
// Cost: 2·batch·m·n·k flops whatever alpha, beta and epilogue, with gate=1 of both products; each
// operand's bytes once; an exp for each element and function of the epilogue that needs one.
// Bound, per element, u = 2^-24: |err| <= (8 + √k)·u·(|alpha||A||B| + |beta||c0|). Sums of k
// float32 products of random sign err like √k roundings (Higham & Mary, "A new approach to
// probabilistic rounding error analysis", 2019); 8 covers short sums and the epilogue. A math that
// rounds operands adds that rounding of each that is not of its format. Integers are exact: k is
// bounded so that no int32 sum overflows. bf16: numbers below 2^-126 may count as zero (vdpbf16ps),
// at most 2^-126·(2k + Σ|a| + Σ|b|). int8-dynamic: A contains the quantised rows. If a quotient is
// so near a tie that float32 may round it to either side, a step of its row times |b| is added
// (reference.hpp). INACCURATE allows (8 + √k)·u more. The epilogue's functions propagate that
// error: epilogue_reference.hpp.
//
// The ladder: ideas from the plainest on, as ladder.cpp has them and `bench --ladder -k gemm`
// measures them. Figures are times over the rung before on one core of a Zen 5 (AVX-512), 768³.
//   0 naive       A dot product per element of c. Down a column of b each element is a cache line,
//                 and each addition waits for the one before.
//   1 reordered   Loops i, p, j: the innermost runs along memory and its sums are independent, so
//                 that the compiler makes vectors of it: 24 times. Nothing where b is given
//                 transposed, because there the dot product runs along memory already.
//   2 blocked     A block of b stays in L2 for all rows of a: 1.1 times, and not more, because c is
//                 still loaded and stored for each product.
//   3 vectorised  A tile of c stays in registers, so that a load of a or b serves many products: 3
//                 times. With a transposed b its elements are collected one by one, and that is all
//                 the time.
//   4 packed      Operands are copied into the order in which tiles read them: 1.1 times, 3.3 where
//                 b is transposed; on two threads another 1.8.
//   hwy           Wider tiles, blocks from the machine's own caches, packing of a only where it
//                 pays, edges by masks or halves, and other paths for small, skinny and deep
//                 problems.
// Dead ends. Packing where everything is in cache anyway: 0.7 times at 64³, hence paths that pack
// nothing. Caches before registers: blocking alone gains almost nothing (step 2). An accumulator
// array that GCC 12 does not unroll completely, down to the loop that stores it, is on the stack.
//
// The ladder of opencl (gemm_ladder.cl), for a GPU: 0 naive, an item per element of c; 1 tiled,
// 16×16 tiles of a and b in local memory, read once by a group; 2 registers, 8×8 elements per item,
// so that a value from local memory is used 8 times; 3 vectors, accesses of 16 bytes. opencl goes
// on with copies that run ahead of the products, other paths for skinny products, and tiles by a
// model.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "core/tensor.hpp"
#include "core/variant.hpp"
#include "kernels/gemm/epilogue.hpp"
#include "kernels/gemm/matrix_view.hpp"

namespace rooflane::gemm {

// Formats of b that stand for real numbers beside float_types: weights that a product decodes.
inline bool is_quantised(DType type) { return type->quantisation.bits > 0; }
// Everything that a tensor of gemm may be; and what variants take that decode b to float32.
inline constexpr DType all_types[] = {&float32, &float16, &bfloat16,         &int8, &uint8,
                                      &int32,   &q8_0,    &int8_per_channel, &q4_0, &q4_1};

// A complete problem with its types. alpha and beta are rounded to float32, as every variant uses
// them.
struct Gemm {
  std::int64_t m, n, k, batch;
  bool trans_a, trans_b;
  float alpha, beta;
  bool prepack;
  bool gate;
  Epilogue epilogue;

  explicit Gemm(const Problem& problem)
      : m(problem.size("m")),
        n(problem.size("n")),
        k(problem.size("k")),
        batch(problem.size("batch")),
        trans_a(problem.flag("trans_a")),
        trans_b(problem.flag("trans_b")),
        alpha(static_cast<float>(problem.value("alpha"))),
        beta(static_cast<float>(problem.value("beta"))),
        prepack(problem.flag("prepack")),
        gate(problem.flag("gate")),
        epilogue(problem) {}

  bool empty() const { return batch == 0 || m == 0 || n == 0; }
  // Whether a product is formed at all. Otherwise a and b are not read.
  bool reads_ab() const { return alpha != 0 && k > 0; }
  bool reads_c0() const { return beta != 0; }
  bool has_epilogue() const { return gate || !epilogue.empty(); }
  // Columns of op(b): with gate=1 those of both products.
  std::int64_t b_cols() const { return gate ? 2 * n : n; }
};

inline MatrixView view_of_a(const Gemm& g, const View& a) { return {a, !g.trans_a}; }
inline MatrixView view_of_b(const Gemm& g, const View& b) { return {b, g.trans_b}; }

// c or c0.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t ld = 0;
  T* row(std::int64_t batch, std::int64_t i) const { return data + batch * batch_stride + i * ld; }
};

inline Matrix<float> matrix(const View& v) { return {v.f32(), v.strides[0], v.strides[1]}; }
inline Matrix<const float> const_matrix(const View& v) {
  return {v.f32(), v.strides[0], v.strides[1]};
}

// The columns of b for one product of gate=1: 0 gate, 1 up.
inline View half_of_b(View b, bool trans_b, int half) {
  const int axis = trans_b ? 1 : 2;
  b.shape[axis] /= 2;
  b.data = static_cast<std::byte*>(b.data) + b.dtype->bytes(half * b.shape[axis] * b.strides[axis]);
  return b;
}

// The ladders of hwy (ladder.cpp) and opencl (opencl_ladder.cpp).
extern const Rung ladder[6];
extern const Rung opencl_ladder[4];

// What remains when no product is formed: c = beta · c0, or zeros.
inline void scale_only(const Gemm& g, Matrix<const float> c0, Matrix<float> c) {
  for (std::int64_t b = 0; b < g.batch; ++b) {
    for (std::int64_t i = 0; i < g.m; ++i) {
      float* to = c.row(b, i);
      const float* from = g.reads_c0() ? c0.row(b, i) : nullptr;
      for (std::int64_t j = 0; j < g.n; ++j) to[j] = from != nullptr ? g.beta * from[j] : 0.0f;
    }
  }
}

}  // namespace rooflane::gemm
