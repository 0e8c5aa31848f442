// Where the sums of a dot-product unit become c: stored tile by tile, in c's format, and what the
// epilogue makes of a tile while it is in L1. Next: dot_unit.hpp (Output), hwy_epilogue.hpp.
#pragma once

#include <cstdint>

#include "kernels/gemm/dot_unit.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_epilogue.hpp"

namespace rooflane::gemm {

class DotOutput {
 public:
  using Finish = void (*)(const FinishCall&);
  DotOutput(const Gemm& g, Finish finish);

  // `gate`: the sums of the first product of gate=1.
  void bind(const Operands& operands, Matrix<const float> gate = {});
  // c, c0, alpha and beta of a batch; what its sums are is for the caller to fill in.
  Output of(std::int64_t batch) const;
  // A tile of `output`, which is of `batch`.
  void store(std::int64_t batch, const FinishCall& call) const;
  // What sums of zero leave: c = beta·c0, and the epilogue.
  void store_zeros() const;

 private:
  void store_short(std::int64_t batch, const FinishCall& call) const;

  const Gemm g_;
  const Finish finish_;
  const EpilogueFunction epilogue_;  // null: there is none
  EpilogueJob job_;
  View c_, c0_, residual_;
};

}  // namespace rooflane::gemm
