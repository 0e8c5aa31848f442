// GEMM, variant `scalar`: plain loops on one thread, compiled without auto-vectorisation; the
// honest floor. Not tuned in any way. Next: hwy.cpp for what tiles, packing and vectors buy.
#include <algorithm>
#include <memory>
#include <vector>

#include "backends/scalar.hpp"
#include "core/float16.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/common/activations.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/operands_refusal.hpp"
#include "kernels/gemm/scalar_formats.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

// a and c are converted a row at a time, elements of b, of type B, where they are used.
template <class B>
class ScalarPlan final : public Plan {
 public:
  ScalarPlan(const Problem& problem, const Operands& constants)
      : Plan(problem),
        g_(problem),
        a_row_(static_cast<std::size_t>(g_.k)),
        c_row_(static_cast<std::size_t>(g_.n)),
        gate_row_(static_cast<std::size_t>(g_.gate ? g_.n : 0)) {
    if (!g_.prepack) return;
    // prepack=1: op(b) as [batch,k,b_cols] without gaps.
    const MatrixView from = view_of_b(g_, constants.at("b"));
    packed_.reserve(static_cast<std::size_t>(g_.batch * g_.k * g_.b_cols()));
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t p = 0; p < g_.k; ++p) {
        for (int64_t j = 0; j < g_.b_cols(); ++j) {
          packed_.push_back(*b_at(from, batch, j, p));
        }
      }
    }
    b_ = {contiguous_view(packed_.data(), Shape{g_.batch, g_.k, g_.b_cols()}, from.type), false};
  }

  void run() override {
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t i = 0; i < g_.m; ++i) row(batch, i);
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    if (!packed_.empty()) list.push_back(std::as_bytes(std::span(packed_)));
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.path = "scalar";
    facts.workspace_bytes = (a_row_.size() + c_row_.size() + gate_row_.size()) * sizeof(float);
    facts.packed_bytes = packed_.size() * sizeof(B);
    return facts;
  }

 private:
  static const B* b_at(const MatrixView& b, int64_t batch, int64_t column, int64_t p) {
    return reinterpret_cast<const B*>(b.at(batch, column, p));
  }

  void on_bind(const Operands& operands) override {
    a_ = operands.at("a");
    if (!g_.prepack) b_ = view_of_b(g_, operands.at("b"));
    if (g_.reads_c0()) c0_ = operands.at("c0");
    if (g_.epilogue.has(Epilogue::Op::bias)) bias_ = operands.at("bias").f32();
    if (g_.epilogue.has(Epilogue::Op::add)) residual_ = operands.at("residual");
    c_ = operands.at("c");
  }

  // One row of c: along n where rows of op(b) are contiguous, else one dot product per element.
  void row(int64_t batch, int64_t i) {
    std::fill(c_row_.begin(), c_row_.end(), 0.0f);
    if (g_.reads_ab()) {
      const B* const b = b_at(b_, batch, 0, 0);
      read_a(batch, i);
      add_products(b);
      if (g_.gate) {
        std::swap(c_row_, gate_row_);
        std::fill(c_row_.begin(), c_row_.end(), 0.0f);
        add_products(b + g_.n * b_.outer);
      }
      for (float& c : c_row_) c *= g_.alpha;
    }
    with_float_type(c_.dtype, [&](auto type) {
      using C = decltype(type);
      if (g_.reads_c0()) {
        const C* c0 = c0_.as<C>() + batch * c0_.strides[0] + i * c0_.strides[1];
        for (int64_t j = 0; j < g_.n; ++j) c_row_[j] += g_.beta * c0[j];
      }
      if (g_.gate) multiply_by_gate();
      if (!g_.epilogue.empty()) {
        apply_epilogue(g_.epilogue.has(Epilogue::Op::add)
                           ? residual_.as<C>() + batch * residual_.strides[0] +
                                 i * residual_.strides[1]
                           : nullptr);
      }
      C* c = c_.as<C>() + batch * c_.strides[0] + i * c_.strides[1];
      for (int64_t j = 0; j < g_.n; ++j) c[j] = static_cast<C>(c_row_[j]);
    });
  }

  void multiply_by_gate() {
    using common::Activation;
    for (int64_t j = 0; j < g_.n; ++j) {
      c_row_[j] *= common::activated_plainly(Activation::silu, gate_row_[j]);
    }
  }

  // One function after the other over the row. `residual`: of the row, where there is one.
  template <class C>
  void apply_epilogue(const C* residual) {
    for (const Epilogue::Op op : g_.epilogue.ops()) {
      for (int64_t j = 0; j < g_.n; ++j) c_row_[j] = applied(op, c_row_[j], j, residual);
    }
  }
  template <class C>
  float applied(Epilogue::Op op, float v, int64_t j, const C* residual) const {
    using Op = Epilogue::Op;
    using common::Activation;
    const Epilogue& e = g_.epilogue;
    switch (op) {
      case Op::bias:
        return v + bias_[j];
      case Op::relu:
        return common::activated_plainly(Activation::relu, v);
      case Op::leaky_relu:
        return v < 0 ? e.slope * v : v;
      case Op::gelu:
        return common::activated_plainly(Activation::gelu, v);
      case Op::gelu_tanh:
        return common::activated_plainly(Activation::gelu_tanh, v);
      case Op::silu:
        return common::activated_plainly(Activation::silu, v);
      case Op::add:
        return v + residual[j];
      case Op::clamp:
        break;
    }
    return v < e.low ? e.low : v > e.high ? e.high : v;
  }

  void read_a(int64_t batch, int64_t i) {
    with_float_type(a_.dtype, [&](auto type) {
      const int64_t outer = g_.trans_a ? 1 : a_.strides[1], inner = g_.trans_a ? a_.strides[1] : 1;
      const auto* from = a_.as<decltype(type)>() + batch * a_.strides[0] + i * outer;
      for (int64_t p = 0; p < g_.k; ++p) a_row_[p] = from[p * inner];
    });
  }

  void add_products(const B* b) {
    if (b_.outer == 1) {
      for (int64_t p = 0; p < g_.k; ++p) {
        const float x = a_row_[p];
        for (int64_t j = 0; j < g_.n; ++j) c_row_[j] += x * b[p * b_.inner + j];
      }
      return;
    }
    for (int64_t j = 0; j < g_.n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < g_.k; ++p) sum += a_row_[p] * b[p + j * b_.outer];
      c_row_[j] = sum;
    }
  }

  const Gemm g_;
  std::vector<float> a_row_, c_row_;
  std::vector<float> gate_row_;  // sums of the first product of gate=1
  std::vector<B> packed_;
  View a_, c0_, residual_, c_;
  const float* bias_ = nullptr;
  MatrixView b_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands& constants) {
  if (needs_decoding(problem, env)) return decoding_plan(problem, env, constants);
  return with_float_type(problem.dtype("b_type"), [&](auto type) -> std::unique_ptr<Plan> {
    return std::make_unique<ScalarPlan<decltype(type)>>(problem, constants);
  });
}

// float16 and bfloat16 operands are float32 numbers too, and their products exact.
std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (const std::string epilogue = epilogue_text(problem);
      !epilogue.empty() && needs_decoding(problem, env)) {
    return fmt::format("{}: computed of f32, f16 and bf16 operands in math fp32", epilogue);
  }
  return unrounded_operands(problem, env);
}

constexpr const Math* maths[] = {&fp32, &math_bf16, &math_f16, &math_int8, &math_int8_dynamic};

}  // namespace

const Variant scalar = {.name = "scalar",
                        .kernel = &kernel,
                        .backend = &scalar::backend,
                        .threads = Threads::one,
                        .tunables = {},
                        .unsupported = unsupported,
                        .tunings = no_tunings,
                        .plan = plan,
                        .maths = maths,
                        .dtypes = all_types};

}  // namespace rooflane::gemm
