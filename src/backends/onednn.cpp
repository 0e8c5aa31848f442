// oneDNN's primitives under both interfaces. See onednn.hpp.
#include "backends/onednn.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace rooflane::onednn {

const Backend backend = {.name = "onednn"};

namespace {

std::string isa_name() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:  // newer than both interfaces' common names, or no x86
      return fmt::format("isa {:#x}", static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  }
}

dnnl::memory::data_type data_type(DType dtype) {
  using Type = dnnl::memory::data_type;
  const std::pair<DType, Type> types[] = {{&float32, Type::f32}, {&bfloat16, Type::bf16},
                                          {&float16, Type::f16}, {&int8, Type::s8},
                                          {&uint8, Type::u8},    {&int32, Type::s32}};
  for (const auto& [ours, theirs] : types) {
    if (ours == dtype) return theirs;
  }
  throw unavailable_error(fmt::format("oneDNN: no number format {}", name_of(dtype)));
}

// Scratchpads are the caller's, so that a run allocates none; no reduced precision anywhere.
dnnl::primitive_attr strict() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

// A product that oneDNN refuses is not the user's mistake.
template <class Make>
auto made(const char* what, Make make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw unavailable_error(fmt::format("oneDNN: {}: {}", what, error.what()));
  }
}

void append_eltwise(dnnl::post_ops& post, dnnl::algorithm f, float alpha, float beta) {
#if DNNL_VERSION_MAJOR >= 3
  post.append_eltwise(f, alpha, beta);
#else
  post.append_eltwise(1, f, alpha, beta);
#endif
}

dnnl::post_ops post_ops(float alpha, float beta, std::span<const PostOp> further) {
  dnnl::post_ops post;
  if (alpha != 1) append_eltwise(post, dnnl::algorithm::eltwise_linear, alpha, 0);
  if (beta != 0) post.append_sum(beta);
  for (const PostOp& op : further) {
    if (op.operand) {
      post.append_binary(op.f, *op.operand);
    } else {
      append_eltwise(post, op.f, op.alpha, op.beta);
    }
  }
  return post;
}

dnnl::matmul::primitive_desc matmul_desc(const Desc& src, const Desc& weights, const Desc& dst,
                                         const dnnl::post_ops& post) {
  dnnl::primitive_attr attributes = strict();
  attributes.set_post_ops(post);
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), src, weights, dst, attributes};
#else
  return {dnnl::matmul::desc(src, weights, dst), attributes, engine()};
#endif
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

std::string description() {
  const dnnl_version_t* version = dnnl::version();
  return fmt::format("oneDNN {}.{}.{} {} strict", version->major, version->minor, version->patch,
                     isa_name());
}

std::optional<std::string> unsupported_anywhere(const Problem& problem, const Environment&) {
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    for (const std::int64_t length : tensor_shape(problem, tensor)) {
      if (length > std::numeric_limits<int>::max()) {
        return fmt::format("tensor {}: a length of {} exceeds the 32-bit sizes of oneDNN's kernels",
                           tensor.name, length);
      }
    }
  }
  return std::nullopt;
}

int lanes() {
  const std::string isa = isa_name();
  return isa.starts_with("avx512") ? 16 : isa.starts_with("avx") ? 8 : 4;
}

void set_threads(int threads) { omp_set_num_threads(std::max(threads, 1)); }

std::optional<Desc> describe(std::span<const std::int64_t> dims,
                             std::span<const std::int64_t> strides, DType dtype) {
  dnnl::memory::dims lengths(dims.begin(), dims.end());
  dnnl::memory::dims steps(strides.begin(), strides.end());
  // What an axis of length 1 would need as the outermost one.
  std::int64_t end = 1;
  for (std::size_t axis = 0; axis < lengths.size(); ++axis) {
    if (lengths[axis] == 1) continue;
    if (steps[axis] == 0) return std::nullopt;
    end = std::max(end, steps[axis] * lengths[axis]);
  }
  for (std::size_t axis = lengths.size(); axis-- > 0;) {
    // A last axis of length 1 stays contiguous, so that kernels for row-major rows take it.
    if (lengths[axis] == 1) steps[axis] = axis + 1 == lengths.size() && steps[axis] == 1 ? 1 : end;
  }
  // From the innermost axis outwards every stride must clear what lies inside.
  std::vector<std::size_t> order;
  for (std::size_t axis = 0; axis < lengths.size(); ++axis) {
    if (lengths[axis] > 1) order.push_back(axis);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return steps[x] < steps[y]; });
  std::int64_t inside = 1;
  for (const std::size_t axis : order) {
    if (steps[axis] < inside) return std::nullopt;
    inside = steps[axis] * (lengths[axis] - 1) + inside;
  }
  try {
    return Desc(lengths, data_type(dtype), steps);
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

Call::Call(const dnnl::primitive& primitive, const Desc& scratchpad,
           std::span<const std::pair<int, Desc>> tensors)
    : primitive_(primitive), stream_(engine()), scratch_(scratchpad.get_size()) {
  memories_.reserve(tensors.size() + 1);
  const auto add = [&](int argument, const Desc& layout, void* data) {
    const dnnl::memory& memory = memories_.emplace_back(layout, engine(), data);
    arguments_.push_back({argument, memory.get()});
  };
  for (const auto& [argument, layout] : tensors) add(argument, layout, nullptr);
  if (scratch_.bytes() > 0) add(DNNL_ARG_SCRATCHPAD, scratchpad, scratch_.data());
}

void Call::set(int argument, const void* data) {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    // oneDNN knows no read-only memory; it does not write its sources.
    if (arguments_[i].arg == argument) memories_[i].set_data_handle(const_cast<void*>(data));
  }
}

void Call::run() {
  // The C++ interface would build a list of arguments on each call.
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
                             arguments_.data()),
      "could not execute a primitive");
  stream_.wait();
}

Matmul::Matmul(const Desc& src, const Desc& weights_or_any, const Desc& dst, float alpha,
               float beta, std::span<const PostOp> further) {
  const auto desc = made("matmul", [&] {
    return matmul_desc(src, weights_or_any, dst, post_ops(alpha, beta, further));
  });
  weights = desc.weights_desc();
  implementation = desc.impl_info_str();
  std::vector<std::pair<int, Desc>> tensors = {
      {DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}};
  int index = (alpha != 1 ? 1 : 0) + (beta != 0 ? 1 : 0);
  for (const PostOp& op : further) {
    const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(index++) | DNNL_ARG_SRC_1;
    if (!op.operand) continue;
    operands.push_back(argument);
    tensors.emplace_back(argument, *op.operand);
  }
  call = Call(made("matmul", [&] { return dnnl::matmul(desc); }), desc.scratchpad_desc(), tensors);
}

namespace {

bool is_version_3_7_2() {
  const dnnl_version_t* version = dnnl::version();
  return version->major == 3 && version->minor == 7 && version->patch == 2;
}

}  // namespace

std::optional<std::string> packed_matmul_fault(int threads, double beta) {
  if (!is_version_3_7_2() || lanes() != 8 || threads < 2 || beta == 0) return std::nullopt;
  return fmt::format("{} gets beta·c0 beside packed weights wrong on several threads",
                     description());
}

std::optional<std::string> row_operand_fault(std::int64_t batch, std::int64_t m, std::int64_t n) {
  if (dnnl::version()->major != 2 || batch < 2 || m != 1 || n == 1) return std::nullopt;
  return fmt::format("{} crashes where a row is added to several products of one row",
                     description());
}

std::optional<std::string> integers_fault() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
    case dnnl::cpu_isa::avx:
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx512_core:
      return fmt::format("{} saturates sums of 8-bit products where the CPU lacks VNNI",
                         description());
    default:
      return std::nullopt;
  }
}

std::optional<std::string> matmul_fault(const Matmul& matmul,
                                        std::span<const std::int64_t> src_dims,
                                        std::span<const std::int64_t> src_strides,
                                        std::span<const std::int64_t> dst_dims,
                                        std::span<const std::int64_t> dst_strides) {
  // Its other implementations are right; which one takes a layout differs among CPUs.
  if (!is_version_3_7_2() || !matmul.implementation.starts_with("brg_matmul")) return std::nullopt;
  const std::size_t rank = src_dims.size(), row = rank - 2, col = rank - 1;
  if (rank == 2 && dst_dims[col] == 1 && dst_dims[row] > 1 && dst_strides[row] > 1) {
    return fmt::format("{} writes outside a single column with gaps between its elements",
                       description());
  }
  if (src_dims[row] == 1 && src_dims[col] > 1 && src_strides[col] > 1) {
    return fmt::format(
        "{} takes a transposed column with gaps between its elements for a dense one",
        description());
  }
  return std::nullopt;
}

Desc any_layout(std::span<const std::int64_t> dims, DType dtype) {
  return {dnnl::memory::dims(dims.begin(), dims.end()), data_type(dtype),
          dnnl::memory::format_tag::any};
}

std::optional<std::string> reorder_fault(const Desc& from, const Desc& to) {
  try {
    const dnnl::reorder::primitive_desc tried(engine(), from, engine(), to);
  } catch (const dnnl::error& error) {
    return fmt::format("{}: {}", description(), error.what());
  }
  return std::nullopt;
}

void reorder(const Desc& from, const void* source, const Desc& to, void* target) {
  dnnl::memory in(from, engine(), const_cast<void*>(source));
  dnnl::memory out(to, engine(), target);
  dnnl::stream stream(engine());
  made("reorder", [&] {
    dnnl::reorder(in, out).execute(stream, in, out);
    stream.wait();
    return 0;
  });
}

Call softmax(const Desc& rows) {
  constexpr auto inference = dnnl::prop_kind::forward_inference;
  constexpr auto accurate = dnnl::algorithm::softmax_accurate;
  constexpr int axis = 1;
  const std::pair<int, Desc> tensors[] = {{DNNL_ARG_SRC, rows}, {DNNL_ARG_DST, rows}};
  return made("softmax", [&] {
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::softmax_forward::primitive_desc desc(engine(), inference, accurate, rows, rows,
                                                     axis, strict());
    const dnnl::softmax_forward primitive(desc);
#else
    const dnnl::softmax_v2_forward::primitive_desc desc({inference, accurate, rows, rows, axis},
                                                        strict(), engine());
    const dnnl::softmax_v2_forward primitive(desc);
#endif
    return Call(primitive, desc.scratchpad_desc(), tensors);
  });
}

Call layer_normalization(const Desc& rows, float eps) {
  constexpr auto inference = dnnl::prop_kind::forward_inference;
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  return made("layer normalization", [&] {
    using Forward = dnnl::layer_normalization_forward;
#if DNNL_VERSION_MAJOR >= 3
    const Forward::primitive_desc desc(engine(), inference, rows, rows, eps, flags, strict());
#else
    const Forward::primitive_desc desc({inference, rows, eps, flags}, strict(), engine());
#endif
    const std::pair<int, Desc> tensors[] = {{DNNL_ARG_SRC, rows},
                                            {DNNL_ARG_DST, rows},
                                            {DNNL_ARG_SCALE, desc.weights_desc()},
                                            {DNNL_ARG_SHIFT, desc.weights_desc()}};
    return Call(Forward(desc), desc.scratchpad_desc(), tensors);
  });
}

Call eltwise(const Desc& rows, dnnl::algorithm f) {
  constexpr auto inference = dnnl::prop_kind::forward_inference;
  constexpr float alpha = 1;  // what swish multiplies the argument of its logistic by
  const std::pair<int, Desc> tensors[] = {{DNNL_ARG_SRC, rows}, {DNNL_ARG_DST, rows}};
  return made("eltwise", [&] {
    using Forward = dnnl::eltwise_forward;
#if DNNL_VERSION_MAJOR >= 3
    const Forward::primitive_desc desc(engine(), inference, f, rows, rows, alpha, 0, strict());
#else
    const Forward::primitive_desc desc({inference, f, rows, alpha, 0}, strict(), engine());
#endif
    return Call(Forward(desc), desc.scratchpad_desc(), tensors);
  });
}

Call binary(dnnl::algorithm f, const Desc& rows, const Desc& second) {
  const std::pair<int, Desc> tensors[] = {
      {DNNL_ARG_SRC_0, rows}, {DNNL_ARG_SRC_1, second}, {DNNL_ARG_DST, rows}};
  return made("binary", [&] {
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::binary::primitive_desc desc(engine(), f, rows, second, rows, strict());
#else
    const dnnl::binary::primitive_desc desc({f, rows, second, rows}, strict(), engine());
#endif
    return Call(dnnl::binary(desc), desc.scratchpad_desc(), tensors);
  });
}

Desc Rows::layout() const {
  return {{rows_, cols_}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab};
}

void Rows::bind(const float* x, std::int64_t x_stride, float* y, std::int64_t y_stride) {
  x_ = x;
  x_stride_ = x_stride;
  y_ = y;
  y_stride_ = y_stride;
  const auto elements = static_cast<std::size_t>(rows_ * cols_);
  dense_ = has_gaps(y_stride) ? Buffer(elements * sizeof(float)) : Buffer();
}

void Rows::run(Call& call, Call* then) const {
  float* const target = has_gaps(y_stride_) ? dense_.f32() : y_;
  const float* source = x_;
  if (has_gaps(x_stride_)) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::copy_n(x_ + row * x_stride_, cols_, target + row * cols_);
    }
    source = target;
  }
  call.set(DNNL_ARG_SRC, source);
  call.set(DNNL_ARG_DST, target);
  call.run();
  if (then != nullptr) {
    then->set(DNNL_ARG_SRC, target);
    then->set(DNNL_ARG_DST, target);
    then->run();
  }
  if (target == y_) return;
  for (std::int64_t row = 0; row < rows_; ++row) {
    std::copy_n(target + row * cols_, cols_, y_ + row * y_stride_);
  }
}

void DenseInput::bind(const View& view) {
  view_ = view;
  const bool has_gaps = view.rows() > 1 && view.strides[0] != view.cols();
  const auto elements = static_cast<std::size_t>(view.elements());
  dense_ = has_gaps ? Buffer(elements * sizeof(float)) : Buffer();
}

const float* DenseInput::values() const {
  if (dense_.bytes() == 0) return view_.f32();
  for (std::int64_t row = 0; row < view_.rows(); ++row) {
    std::copy_n(view_.f32() + row * view_.strides[0], view_.cols(),
                dense_.f32() + row * view_.cols());
  }
  return dense_.f32();
}

}  // namespace rooflane::onednn
