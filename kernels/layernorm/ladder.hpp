// What the rungs of LayerNorm's ladder work on. The rungs: ladder.cpp.
#pragma once

#include "kernels/common/ladder_rows.hpp"
#include "kernels/layernorm/layernorm.hpp"

namespace rooflane::layernorm::ladder_steps {

struct Job : common::RowJob<LayerNormOperands> {
  Job(const Problem& problem, const Operands& constants)
      : RowJob(problem, constants), eps(problem.value("eps")) {}
  double eps;
};

}  // namespace rooflane::layernorm::ladder_steps
