// An epilogue in passes of its own: one over all of c for each function, by vectors and on all
// threads, as single kernels behind the product would do it. See hwy_epilogue.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/parallel.hpp"
#include "kernels/gemm/hwy_epilogue.hpp"

namespace rooflane::gemm {

class EpiloguePasses {
 public:
  EpiloguePasses(const Gemm& g, int threads, Pool* pool, EpilogueFunction function)
      : rows_(g.batch * g.m),
        m_(g.m),
        n_(g.n),
        threads_(std::max(threads, 1)),
        pool_(pool),
        function_(function) {
    for (const Epilogue::Op op : g.epilogue.ops()) {
      passes_.emplace_back(g).chain = Epilogue(op, g.epilogue);
    }
    if (g.gate) passes_.emplace_back(g);
  }
  // `gate`: the sums of the first product of gate=1.
  void bind(const Operands& operands, Matrix<const float> gate = {}) {
    for (EpilogueJob& pass : passes_) {
      pass.bind(operands);
      pass.gate = gate;
    }
  }
  void run() const {
    for (const EpilogueJob& pass : passes_) {
      parallel_for_static(pool_, threads_, threads_, [&](std::int64_t share, int) {
        const std::int64_t end = rows_ * (share + 1) / threads_;
        for (std::int64_t row = rows_ * share / threads_; row < end; ++row) {
          function_(pass, {row / m_, row % m_, 0, 1, n_});
        }
      });
    }
  }

 private:
  std::int64_t rows_, m_, n_;
  int threads_;
  Pool* pool_;
  EpilogueFunction function_;
  std::vector<EpilogueJob> passes_;  // of a chain one for each function
};

}  // namespace rooflane::gemm
