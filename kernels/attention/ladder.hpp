// What the rungs of attention's ladder work on, free of vector types. The rungs: ladder.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.hpp"
#include "kernels/common/ladder.hpp"

namespace rooflane::attention::ladder_steps {

struct Job {
  Job(const Problem& problem, const Operands& /*constants*/)
      : s(problem), scale(static_cast<float>(s.scale)) {}

  void bind(const Operands& operands) { in = Bound(operands, s); }
  std::span<const std::byte> packed() const { return {}; }

  Sizes s;
  float scale;
  Bound in;
  common::Workers workers;
};

// The matrices of one query head: rows of q and o, rows of k and v of its kv head.
struct Head {
  Head(const Job& job, std::int64_t batch, std::int64_t head)
      : q(job.in.q.matrix(batch, head)),
        k(job.in.k.matrix(batch, head / job.s.group())),
        v(job.in.v.matrix(batch, head / job.s.group())),
        o(job.in.o.matrix(batch, head)),
        q_stride(job.in.q.row_stride),
        k_stride(job.in.k.row_stride),
        v_stride(job.in.v.row_stride),
        o_stride(job.in.o.row_stride) {}

  const float *q, *k, *v;
  float* o;
  std::int64_t q_stride, k_stride, v_stride, o_stride;
};

}  // namespace rooflane::attention::ladder_steps
