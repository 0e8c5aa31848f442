// GEMM, variant `onednn`: one matmul primitive over the whole batch on the caller's strides; alpha,
// beta and the epilogue are post-operations. prepack=1: b in the layout oneDNN chooses, reordered
// by `plan`. Formats: bf16 and f16 products, 8-bit integers, where oneDNN has them on this CPU; the
// row's path is the name of the implementation that it chose. Not oneDNN's: copying c0 into c, and
// the cases without a product. Next: hwy.cpp for our own.
#include "backends/onednn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/copy_rows.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/separate.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

// batch × rows × cols with any strides; a batch of one is left out, as oneDNN's faster kernels
// want.
struct Layout {
  explicit Layout(const View& x, bool transposed = false)
      : type(x.dtype),
        dims{x.shape[0], x.shape[1], x.shape[2]},
        strides{x.strides[0], x.strides[1], 1},
        skipped(dims[0] == 1 ? 1 : 0) {
    if (!transposed) return;
    std::swap(dims[1], dims[2]);
    std::swap(strides[1], strides[2]);
  }
  std::span<const int64_t> lengths() const { return std::span(dims).subspan(skipped); }
  std::span<const int64_t> steps() const { return std::span(strides).subspan(skipped); }
  std::optional<onednn::Desc> desc() const { return onednn::describe(lengths(), steps(), type); }

  DType type;
  std::array<int64_t, 3> dims, strides;
  int skipped;
};

// [batch,rows,cols], or as its transpose is stored, without gaps and data.
View dense(const Gemm& g, int64_t rows, int64_t cols, DType type, bool transposed = false) {
  if (transposed) std::swap(rows, cols);
  return contiguous_view(nullptr, Shape{g.batch, rows, cols}, type);
}

// The eltwise functions of a chain. Not: relu, leaky_relu and clamp, which lose a NaN.
std::optional<dnnl::algorithm> eltwise_of(Epilogue::Op op) {
  switch (op) {
    case Epilogue::Op::gelu:
      return dnnl::algorithm::eltwise_gelu_erf;
    case Epilogue::Op::gelu_tanh:
      return dnnl::algorithm::eltwise_gelu_tanh;
    case Epilogue::Op::silu:
      return dnnl::algorithm::eltwise_swish;
    default:
      return std::nullopt;
  }
}
bool is_sum(Epilogue::Op op) { return op == Epilogue::Op::bias || op == Epilogue::Op::add; }

class OnednnPlan final : public Plan {
 public:
  OnednnPlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem), g_(problem), threads_(env.threads) {
    if (g_.empty() || !g_.reads_ab()) return;
    bind_input(dense(g_, g_.m, g_.k, problem.dtype("a_type"), g_.trans_a), g_.trans_a, a_);
    bind_input(
        g_.prepack ? constants.at("b") : dense(g_, g_.k, g_.n, problem.dtype("b_type"), g_.trans_b),
        g_.trans_b, b_);
    const View c = dense(g_, g_.m, g_.n, problem.dtype("c_type"));
    make(c, c);
    if (!g_.prepack) return;
    packed_layout_ = matmul_->weights;
    packed_ = Buffer(packed_layout_.get_size());
    // oneDNN 3 packs 8-bit weights from dense rows alone.
    if (onednn::reorder_fault(*layout_of_b().desc(), packed_layout_)) {
      b_.bind(constants.at("b"), true);
    }
    b_.copy();
    onednn::reorder(*layout_of_b().desc(), b_.view().data, packed_layout_, packed_.data());
  }

  void run() override {
    if (g_.empty()) return;
    if (!g_.reads_ab()) {
      scale_only(g_, g_.reads_c0() ? const_matrix(c0_) : Matrix<const float>(), matrix(c_));
      return;
    }
    if (g_.reads_c0()) copy_rows(c0_, c_);
    onednn::set_threads(threads_);
    onednn::Call& call = matmul_->call;
    a_.copy();
    if (!g_.prepack) b_.copy();
    call.set(DNNL_ARG_SRC, a_.view().data);
    call.set(DNNL_ARG_WEIGHTS, g_.prepack ? packed_.data() : b_.view().data);
    call.set(DNNL_ARG_DST, c_.data);
    std::size_t operand = 0;
    for (const Epilogue::Op op : g_.epilogue.ops()) {
      if (!is_sum(op)) continue;
      call.set(matmul_->operands[operand++], op == Epilogue::Op::bias ? bias_ : residual_);
    }
    call.run();
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    if (packed_.bytes() > 0) {
      list.push_back({static_cast<const std::byte*>(packed_.data()), packed_.bytes()});
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = onednn::description();
    facts.workspace_bytes = a_.bytes() + (g_.prepack ? 0 : b_.bytes());
    if (matmul_) {
      facts.workspace_bytes += matmul_->call.scratch_bytes();
      facts.path = matmul_->implementation;
    }
    facts.packed_bytes = packed_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    c_ = operands.at("c");
    if (g_.reads_c0()) c0_ = operands.at("c0");
    if (g_.epilogue.has(Epilogue::Op::bias)) bias_ = operands.at("bias").f32();
    if (g_.epilogue.has(Epilogue::Op::add)) residual_ = operands.at("residual").data;
    if (g_.empty() || !g_.reads_ab()) return;
    bind_input(operands.at("a"), g_.trans_a, a_);
    if (!g_.prepack) bind_input(operands.at("b"), g_.trans_b, b_);
    make(operands.at("c"), operands.at(g_.epilogue.has(Epilogue::Op::add) ? "residual" : "c"));
  }

 private:
  // The primitive for a_, b_ and an output laid out like c. oneDNN keeps primitives it has made, so
  // that making one again is cheap.
  void make(const View& c, const View& residual) {
    onednn::set_threads(threads_);
    const Layout a(a_.view(), g_.trans_a), b = layout_of_b(), out(c);
    const auto dst = out.desc();
    if (!dst) throw unavailable_error("gemm: oneDNN cannot express the strides of c");
    const onednn::Desc weights = !g_.prepack            ? *b.desc()
                                 : packed_.bytes() == 0 ? onednn::any_layout(b.lengths(), b.type)
                                                        : packed_layout_;
    const std::vector<onednn::PostOp> further = post_ops(residual);
    matmul_.emplace(*a.desc(), weights, *dst, g_.alpha, g_.beta, further);
    if (auto fault =
            onednn::matmul_fault(*matmul_, a.lengths(), a.steps(), out.lengths(), out.steps())) {
      throw unavailable_error("gemm: " + *fault);
    }
  }

  std::vector<onednn::PostOp> post_ops(const View& residual) const {
    std::vector<onednn::PostOp> list;
    for (const Epilogue::Op op : g_.epilogue.ops()) {
      if (!is_sum(op)) {
        list.push_back({.f = *eltwise_of(op), .alpha = 1, .operand = {}});
        continue;
      }
      const auto operand = (op == Epilogue::Op::bias ? row_of_bias() : Layout(residual)).desc();
      if (!operand) throw unavailable_error("gemm: oneDNN cannot express the strides of residual");
      list.push_back({.f = dnnl::algorithm::binary_add, .operand = operand});
    }
    return list;
  }
  // One row for all rows and batches.
  Layout row_of_bias() const {
    Layout layout(contiguous_view(nullptr, Shape{g_.batch, 1, g_.n}));
    layout.dims[0] = 1;
    return layout;
  }
  Layout layout_of_b() const { return Layout(b_.view(), g_.trans_b); }
  // Rows that overlap, which oneDNN cannot express, are copied at each run.
  static void bind_input(const View& view, bool transposed, PeerInput& input) {
    input.bind(view, !Layout(view, transposed).desc());
  }

  const Gemm g_;
  const int threads_;
  const float* bias_ = nullptr;
  const void* residual_ = nullptr;
  PeerInput a_, b_;
  onednn::Desc packed_layout_;
  Buffer packed_;
  std::optional<onednn::Matmul> matmul_;
  View c0_, c_;
};

constexpr DType types[] = {&float32, &float16, &bfloat16, &int8, &uint8, &int32};
constexpr const Math* maths[] = {&fp32, &math_bf16, &math_f16, &math_int8};

// Formats that oneDNN has not, and those that it has on other CPUs.
std::optional<std::string> formats_fault(const Problem& problem, const Environment& env) {
  const DType a = problem.dtype("a_type"), b = problem.dtype("b_type"), c = problem.dtype("c_type");
  if (a == &float32 && b == &float32 && c == &float32) return std::nullopt;
  const bool integers = env.math == math_int8.name;
  const DType operand = find_math(kernel, env.math)->operands;
  if (integers ? b != &int8 : a != operand || b != operand || (c != operand && c != &float32)) {
    return fmt::format("math {}: oneDNN has no product of {} and {} as {}", env.math, a->short_name,
                       b->short_name, c->short_name);
  }
  if (integers) {
    if (auto fault = onednn::integers_fault()) return fault;
  }
  const Gemm g(problem);
  if (g.empty()) return std::nullopt;
  if (!g.reads_ab()) return "without a product there is nothing for oneDNN to do";
  // Whether this CPU has it, oneDNN says when it is asked.
  const Layout stored_b(dense(g, g.k, g.n, b, g.trans_b), g.trans_b);
  try {
    const onednn::Matmul tried(*Layout(dense(g, g.m, g.k, a)).desc(),
                               onednn::any_layout(stored_b.lengths(), b),
                               *Layout(dense(g, g.m, g.n, c)).desc());
    if (g.prepack) return onednn::reorder_fault(*stored_b.desc(), tried.weights);
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = onednn::unsupported_anywhere(problem, env)) return reason;
  if (auto reason = formats_fault(problem, env)) return reason;
  const Gemm g(problem);
  if (g.gate) return "gate=1: oneDNN's post-operations have no second product";
  for (const Epilogue::Op op : g.epilogue.ops()) {
    if (is_sum(op) || eltwise_of(op)) continue;
    return fmt::format("epilogue with {}: oneDNN's loses a NaN",
                       Epilogue::names[static_cast<std::size_t>(op)]);
  }
  if (g.epilogue.has(Epilogue::Op::bias)) {
    if (auto fault = onednn::row_operand_fault(g.batch, g.m, g.n)) return fault;
  }
  return g.prepack ? onednn::packed_matmul_fault(env.threads, g.beta) : std::nullopt;
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands& constants) {
  const auto product = [&](const Problem& alone, const Operands& of_product) {
    return std::make_unique<OnednnPlan>(alone, env, of_product);
  };
  const Gemm g(problem);
  if (g.reads_ab() || !g.has_epilogue()) return product(problem, constants);
  return separate_plan(problem, {}, env, epilogue_function(), constants, product);
}

}  // namespace

const Variant onednn = {.name = "onednn",
                        .kernel = &kernel,
                        .backend = &onednn::backend,
                        .threads = Threads::many,
                        .tunables = {},
                        .unsupported = unsupported,
                        .tunings = no_tunings,
                        .plan = plan,
                        .maths = maths,
                        .dtypes = types};

}  // namespace rooflane::gemm
