// The epilogue of a product on rectangles of c with complete sums, by vectors: called when they are
// stored, while their lines are in L1 or L2. For the variants `hwy` and `blas`.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

struct EpilogueJob {
  explicit EpilogueJob(const Gemm& g) : chain(g.epilogue), gates(g.gate) {}

  Epilogue chain;
  bool gates;  // gate=1
  Matrix<float> c;
  const float* bias = nullptr;
  std::int64_t bias_step = 1;  // 0: one value for all columns, those of a column computed as a row
  Matrix<const float> residual;
  Matrix<const float> gate;  // the sums of the first product, while c holds those of the second

  // What the chain reads of a problem's operands, and c. The gate is the caller's; where c is of 16
  // bits, so are c and the residual.
  void bind(const Operands& operands);
};

// Rows [row,row+rows) × columns [col,col+cols) of a batch's c.
struct Rectangle {
  std::int64_t batch, row, col, rows, cols;
};

using EpilogueFunction = void (*)(const EpilogueJob& job, const Rectangle& at);
// For an ISA target of Highway, or the best.
EpilogueFunction epilogue_function(std::int64_t target);
EpilogueFunction epilogue_function();

}  // namespace rooflane::gemm
