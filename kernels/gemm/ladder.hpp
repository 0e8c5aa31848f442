// What the rungs of GEMM's ladder work on, free of vector types. The rungs: ladder.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/buffer.hpp"
#include "kernels/common/ladder.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm::ladder_steps {

struct LadderJob {
  LadderJob(const Problem& problem, const Operands& constants) : g(problem) {
    if (g.prepack) copy_b(constants.at("b"));
  }

  void bind(const Operands& operands) {
    a = view_of_a(g, operands.at("a"));
    if (!g.prepack) b = view_of_b(g, operands.at("b"));
    if (g.reads_c0()) c0 = const_matrix(operands.at("c0"));
    c = matrix(operands.at("c"));
  }

  const float* row_of_a(std::int64_t batch, std::int64_t i) const {
    return a.f32() + batch * a.batch_stride + i * a.outer;
  }
  const float* b_of(std::int64_t batch) const { return b.f32() + batch * b.batch_stride; }
  std::span<const std::byte> packed() const {
    return {static_cast<const std::byte*>(copied.data()), copied.bytes()};
  }

  const Gemm g;
  MatrixView a, b;
  Matrix<const float> c0;
  Matrix<float> c;
  common::Workers workers;
  Buffer copied;

 private:
  // prepack=1: op(b) as [batch,k,n] without gaps.
  void copy_b(const View& view) {
    const MatrixView from = view_of_b(g, view);
    copied = Buffer(static_cast<std::size_t>(g.batch * g.k * g.n) * sizeof(float));
    b = {copied.f32(), g.k * g.n, 1, g.n};
    float* to = copied.f32();
    for (std::int64_t batch = 0; batch < g.batch; ++batch) {
      for (std::int64_t p = 0; p < g.k; ++p) {
        for (std::int64_t j = 0; j < g.n; ++j) {
          *to++ = from.f32()[batch * from.batch_stride + p * from.inner + j * from.outer];
        }
      }
    }
  }
};

}  // namespace rooflane::gemm::ladder_steps
