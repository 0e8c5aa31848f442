// oneDNN on this CPU: the one place that knows both of its C++ interfaces (2.x and 3.x). Rooms ask
// for primitives here and run them as calls on the caller's memory. No precision is reduced beyond
// the formats of the operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.hpp"
#include "core/variant.hpp"
#include "oneapi/dnnl/dnnl.hpp"

namespace rooflane::onednn {

extern const Backend backend;

using Desc = dnnl::memory::desc;

const dnnl::engine& engine();

// "oneDNN 2.6.3 avx512_core strict": version, the instruction set it may use, the math mode.
std::string description();

// Why no plan can work: a size beyond what oneDNN indexes.
std::optional<std::string> unsupported_anywhere(const Problem& problem, const Environment& env);

// Floats in one register of the widest instructions it may use.
int lanes();

// How many OpenMP threads primitives made and run on the calling thread use. Call it before both:
// oneDNN divides the work when a primitive is made.
void set_threads(int threads);

// Any layout; strides in elements. An axis of length 1 may have any stride. Nothing when oneDNN
// cannot express the layout (elements that overlap). Throws Error for a format that oneDNN has not.
std::optional<Desc> describe(std::span<const std::int64_t> dims,
                             std::span<const std::int64_t> strides, DType dtype = &float32);

// One primitive, its scratchpad and its arguments. Running it is one call of oneDNN's C function.
class Call {
 public:
  Call() = default;
  // `tensors` maps argument numbers (DNNL_ARG_SRC…) to layouts.
  Call(const dnnl::primitive& primitive, const Desc& scratchpad,
       std::span<const std::pair<int, Desc>> tensors);
  // Where an argument lies; to be set before `run`.
  void set(int argument, const void* data);
  void run();
  explicit operator bool() const { return !arguments_.empty(); }
  std::size_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  Buffer scratch_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// A function of each element of dst: eltwise with its parameters, or binary with a second operand
// that lies as `operand` says.
struct PostOp {
  dnnl::algorithm f;
  float alpha = 0, beta = 0;
  std::optional<Desc> operand;
};

// dst = alpha·src·weights + beta·dst, then `further` in order; matrices of rank 2, or of rank 3
// with a batch in front. A weights layout of `any` lets oneDNN choose; ask the result. Throws Error
// when it cannot.
struct Matmul {
  Matmul(const Desc& src, const Desc& weights, const Desc& dst, float alpha = 1, float beta = 0,
         std::span<const PostOp> further = {});
  Desc weights;
  std::string implementation;  // "brg_matmul:avx512_core": which of its own oneDNN chose
  Call call;
  std::vector<int> operands;  // the arguments that stand for the operands of `further`, in order
};

// What this oneDNN does wrong with a product of this layout (src [...,m,k], dst [...,m,n]), in
// words; nothing where it is right. Known faults by version and implementation:
// tests/onednn_test.cpp tries each, and fails where one has gone or another version has it.
std::optional<std::string> matmul_fault(const Matmul& matmul,
                                        std::span<const std::int64_t> src_dims,
                                        std::span<const std::int64_t> src_strides,
                                        std::span<const std::int64_t> dst_dims,
                                        std::span<const std::int64_t> dst_strides);

// The same of products with weights in a layout of oneDNN's choice, seen among many sizes in one
// program. No small product shows it alone, so no test notices where it has gone.
std::optional<std::string> packed_matmul_fault(int threads, double beta);

// The same of a row that is added to all rows of dst [batch,m,n], seen as a crash in random
// problems; a test would end with it.
std::optional<std::string> row_operand_fault(std::int64_t batch, std::int64_t m, std::int64_t n);

// Why 8-bit integers are not multiplied exactly on this CPU; nothing where they are. Without VNNI
// oneDNN adds two products in 16 bits, which saturate (its guide, "Nuances of int8 Computations").
std::optional<std::string> integers_fault();

// A layout of oneDNN's own choice.
Desc any_layout(std::span<const std::int64_t> dims, DType dtype = &float32);

// Why it cannot copy between these layouts, by its own words; nothing where it can.
std::optional<std::string> reorder_fault(const Desc& from, const Desc& to);
// Copies between layouts.
void reorder(const Desc& from, const void* source, const Desc& to, void* target);

// Over the last of two axes.
Call softmax(const Desc& rows);
// src and dst have one layout, gamma and beta are [cols] (DNNL_ARG_SCALE, DNNL_ARG_SHIFT).
Call layer_normalization(const Desc& rows, float eps);

// f over [rows,cols] without gaps.
Call eltwise(const Desc& rows, dnnl::algorithm f);
// DNNL_ARG_SRC_0 and DNNL_ARG_SRC_1 by binary_add or binary_mul. The second is laid out as `second`
// says: like the first, or one row.
Call binary(dnnl::algorithm f, const Desc& rows, const Desc& second);

// x and y of a row kernel for calls over rows without gaps. oneDNN 2.6 takes rows with gaps but
// normalises the wrong elements; such x are copied to where the call works in place, such y back.
class Rows {
 public:
  Rows(std::int64_t rows, std::int64_t cols) : rows_(rows), cols_(cols) {}
  Desc layout() const;
  void bind(const float* x, std::int64_t x_stride, float* y, std::int64_t y_stride);
  // Runs `call` on these rows, and `then` in place on what it gave.
  void run(Call& call, Call* then = nullptr) const;
  std::size_t bytes() const { return dense_.bytes(); }

 private:
  bool has_gaps(std::int64_t stride) const { return rows_ > 1 && stride != cols_; }
  std::int64_t rows_, cols_;
  const float* x_ = nullptr;
  float* y_ = nullptr;
  std::int64_t x_stride_ = 0, y_stride_ = 0;
  Buffer dense_;  // only while y has gaps
};

// A further input of such a call, [rows,cols] or [cols]: without gaps as it is, else copied for
// each run.
class DenseInput {
 public:
  void bind(const View& view);
  const float* values() const;
  std::size_t bytes() const { return dense_.bytes(); }

 private:
  View view_;
  Buffer dense_;  // only while the view has gaps
};

}  // namespace rooflane::onednn
