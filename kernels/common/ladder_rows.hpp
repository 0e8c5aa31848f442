// What the ladders of softmax and LayerNorm share: a job over rows. The rungs are in the rooms'
// ladder.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/parallel.hpp"
#include "kernels/common/ladder.hpp"
#include "kernels/common/rows.hpp"

namespace rooflane::common {

// Io: the room's operands, RowOperands or what derives from it.
template <class Io>
struct RowJob {
  RowJob(const Problem& problem, const Operands& /*constants*/)
      : rows(problem.size("rows")), cols(problem.size("cols")) {}

  void bind(const Operands& operands) { io = Io(operands); }
  std::span<const std::byte> packed() const { return {}; }

  const float* x(std::int64_t row) const { return io.x + row * io.x_stride; }
  float* y(std::int64_t row) const { return io.y + row * io.y_stride; }
  std::size_t n() const { return static_cast<std::size_t>(cols); }

  std::int64_t rows, cols;
  Io io;
  Workers workers;
};

// body(row) for every row, by one thread.
template <class Job, class Body>
void each_row(const Job& job, Body&& body) {
  for (std::int64_t row = 0; row < job.rows; ++row) body(row);
}

// body(row) for every row, by all threads: pieces of rows go to whoever is free, eight per thread,
// so that a slow one is helped out.
template <class Job, class Body>
void each_row_threaded(const Job& job, Body&& body) {
  const int threads = useful_threads(job.workers.threads, job.rows, job.cols);
  const std::int64_t pieces = std::min(job.rows, std::int64_t{8} * threads);
  parallel_for(job.workers.pool, threads, pieces, [&](std::int64_t piece, int) {
    const std::int64_t end = job.rows * (piece + 1) / pieces;
    for (std::int64_t row = job.rows * piece / pieces; row < end; ++row) body(row);
  });
}

}  // namespace rooflane::common
