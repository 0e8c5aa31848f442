// See dot_output.hpp.
#include "kernels/gemm/dot_output.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/float16.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

std::byte* batch_of(const View& view, int64_t batch) {
  return static_cast<std::byte*>(view.data) +
         batch * view.strides[0] * static_cast<int64_t>(size_of(view.dtype));
}

}  // namespace

DotOutput::DotOutput(const Gemm& g, Finish finish)
    : g_(g),
      finish_(finish),
      epilogue_(g.has_epilogue() ? epilogue_function() : nullptr),
      job_(g) {}

void DotOutput::bind(const Operands& operands, Matrix<const float> gate) {
  c_ = operands.at("c");
  if (g_.reads_c0()) c0_ = operands.at("c0");
  if (g_.epilogue.has(Epilogue::Op::add)) residual_ = operands.at("residual");
  job_.bind(operands);
  job_.gate = gate;
}

Output DotOutput::of(int64_t batch) const {
  Output out{};
  out.format = c_.dtype == &int32      ? Output::Format::int32
               : c_.dtype == &bfloat16 ? Output::Format::bfloat16
                                       : Output::Format::float32;
  out.alpha = g_.alpha;
  out.beta = g_.beta;
  out.c = batch_of(c_, batch);
  out.ldc = c_.strides[1];
  if (g_.reads_c0()) {
    out.c0 = batch_of(c0_, batch);
    out.ldc0 = c0_.strides[1];
  }
  return out;
}

void DotOutput::store(int64_t batch, const FinishCall& call) const {
  if (epilogue_ == nullptr) {
    finish_(call);
  } else if (call.output->format == Output::Format::bfloat16) {
    store_short(batch, call);
  } else {
    finish_(call);
    epilogue_(job_, {batch, call.row, call.col, call.rows, call.cols});
  }
}

namespace {

// Column 0 of a row whose column `col` is values[0]: no element is there, so that it is an address
// and no pointer's arithmetic.
float* column_zero(float* values, int64_t col) {
  const auto bytes = static_cast<std::uintptr_t>(col) * sizeof(float);
  return reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(values) - bytes);
}

}  // namespace

// bfloat16: a row is formed and followed as float32, and rounded once.
void DotOutput::store_short(int64_t batch, const FinishCall& call) const {
  constexpr int64_t most = 64;  // columns at a time
  float values[most], residual[most];
  Output row_output = *call.output;
  row_output.format = Output::Format::float32;
  row_output.ldc = 0;
  row_output.c0 = nullptr;
  const bool adds = g_.epilogue.has(Epilogue::Op::add);
  const auto row_of = [&](const View& view, int64_t row, int64_t col) {
    return reinterpret_cast<BFloat16*>(batch_of(view, batch)) + row * view.strides[1] + col;
  };
  EpilogueJob job = job_;
  for (int64_t i = 0; i < call.rows; ++i) {
    const int64_t row = call.row + i;
    for (int64_t j0 = 0; j0 < call.cols; j0 += most) {
      const int64_t cols = std::min(most, call.cols - j0), col = call.col + j0;
      row_output.c = column_zero(values, col);
      finish_({&row_output, row, 1, col, cols, call.sums + i * call.ld + j0, call.ld});
      if (g_.reads_c0()) {
        const BFloat16* const c0 = row_of(c0_, row, col);
        for (int64_t j = 0; j < cols; ++j) values[j] += g_.beta * static_cast<float>(c0[j]);
      }
      job.c = {column_zero(values, col), 0, 0};
      if (adds) {
        std::copy_n(row_of(residual_, row, col), cols, residual);
        job.residual = {column_zero(residual, col), 0, 0};
      }
      epilogue_(job, {batch, row, col, 1, cols});
      BFloat16* const c = row_of(c_, row, col);
      for (int64_t j = 0; j < cols; ++j) c[j] = BFloat16(values[j]);
    }
  }
}

void DotOutput::store_zeros() const {
  const std::vector<std::uint32_t> zeros(static_cast<std::size_t>(g_.n));
  for (int64_t batch = 0; batch < g_.batch; ++batch) {
    Output out = of(batch);
    out.alpha = 1;  // 0 times a zero, whatever alpha
    store(batch, {&out, 0, g_.m, 0, g_.n, zeros.data(), 0});
  }
}

}  // namespace rooflane::gemm
