// What the ladders of softmax and LayerNorm share: a job over rows. The rungs stand in the rooms'
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

// body(row) for every row, by all threads, each taking the next few rows when it is free.
template <class Job, class Body>
void each_row_threaded(const Job& job, Body&& body) {
  const int threads = useful_threads(job.workers.threads, job.rows, job.cols);
  const std::int64_t step = rows_per_task(threads, job.rows, job.cols);
  const std::int64_t tasks = (job.rows + step - 1) / step;
  parallel_for(job.workers.pool, threads, tasks, [&](std::int64_t task, int) {
    const std::int64_t end = std::min(job.rows, (task + 1) * step);
    for (std::int64_t row = task * step; row < end; ++row) body(row);
  });
}

}  // namespace rooflane::common
