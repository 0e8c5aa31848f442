// GEMM, variant `scalar`: plain loops on one thread, compiled without auto-vectorisation; the
// honest floor. Not tuned in any way. Rows of a and b are decoded from any number format, and
// multiplied along n where rows of b lie so, else as dot products. int8-dynamic with weights in
// blocks: products of the real numbers that both stand for. Next: hwy.cpp for what tiles, packing
// and vectors buy.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "backends/scalar.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/activations.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/operands_refusal.hpp"
#include "kernels/gemm/quantised_rows.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

// Numbers of a row as it is stored; with `across`, of a column.
template <class T>
void decode(const View& x, int64_t batch, int64_t index, bool across, std::span<T> to) {
  const NumberFormat& format = *x.dtype;
  const auto* const data = static_cast<const std::byte*>(x.data);
  const int64_t row = across ? 1 : x.strides[1], step = across ? x.strides[1] : 1;
  const int64_t first = batch * x.strides[0] + index * row;
  constexpr int64_t together = 32;  // a whole block of any format
  double numbers[together];
  for (int64_t p = 0; p < std::ssize(to); p += across ? 1 : together) {
    const int64_t count = across ? 1 : std::min(together, std::ssize(to) - p);
    format.decode(data + format.bytes(first + p * step), numbers, count);
    for (int64_t t = 0; t < count; ++t) to[p + t] = static_cast<T>(numbers[t]);
  }
}

// T: what is multiplied and added, float or for integers int32.
template <class T>
class ScalarPlan final : public Plan {
 public:
  ScalarPlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem),
        g_(problem),
        dynamic_(env.math == math_int8_dynamic.name),
        per_channel_(problem.dtype("b_type") == &int8_per_channel),
        together_(quantised_together(problem)),
        cols_(g_.b_cols()),
        a_rows_(static_cast<std::size_t>(rows_together * g_.k)),
        b_row_(static_cast<std::size_t>(std::max(g_.k, cols_))),
        sums_(static_cast<std::size_t>(rows_together * cols_)),
        c_row_(static_cast<std::size_t>(g_.n)),
        added_(static_cast<std::size_t>(g_.n)),
        numbers_(static_cast<std::size_t>(std::max(g_.n, dynamic_ ? g_.k : 0))) {
    if (g_.prepack) pack(constants);
  }

  void run() override {
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t i = 0; i < g_.m; i += rows_together) {
        const int64_t count = std::min(rows_together, g_.m - i);
        if (g_.reads_ab()) add_products(batch, i, count);
        for (int64_t r = 0; r < count; ++r) store(batch, i + r, r);
      }
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
    facts.workspace_bytes = (a_rows_.size() + b_row_.size() + sums_.size()) * sizeof(T) +
                            (c_row_.size() + added_.size()) * sizeof(float) +
                            numbers_.size() * sizeof(double);
    facts.packed_bytes = packed_.size() * sizeof(T) + kept_scale_.size() * sizeof(float);
    return facts;
  }

 private:
  // So many that decoding a row of b counts little beside their products.
  static constexpr int64_t rows_together = 16;

  // prepack=1: op(b) decoded, [batch,k,cols] without gaps.
  void pack(const Operands& constants) {
    b_ = constants.at("b");
    if (per_channel_) {
      const float* const scale = constants.at("b_scale").f32();
      kept_scale_.assign(scale, scale + g_.n);
      b_scale_ = kept_scale_.data();
    }
    if (g_.empty() || !g_.reads_ab()) return;
    std::vector<T> packed(static_cast<std::size_t>(g_.batch * g_.k * cols_));
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t row = 0; row < b_.shape[1]; ++row) {
        const T* const numbers = row_of_b(batch, row);
        for (int64_t t = 0; t < b_.shape[2]; ++t) {
          const int64_t p = g_.trans_b ? t : row, j = g_.trans_b ? row : t;
          packed[(batch * g_.k + p) * cols_ + j] = numbers[t];
        }
      }
    }
    packed_ = std::move(packed);
  }

  void on_bind(const Operands& operands) override {
    a_ = operands.at("a");
    if (!g_.prepack) {
      b_ = operands.at("b");
      if (per_channel_) b_scale_ = operands.at("b_scale").f32();
    }
    if (g_.reads_c0()) c0_ = operands.at("c0");
    if (g_.epilogue.has(Epilogue::Op::bias)) bias_ = operands.at("bias").f32();
    if (g_.epilogue.has(Epilogue::Op::add)) residual_ = operands.at("residual");
    c_ = operands.at("c");
  }

  // A row of b as it is stored, or of the packed one.
  const T* row_of_b(int64_t batch, int64_t row) {
    if (!packed_.empty()) return packed_.data() + (batch * g_.k + row) * cols_;
    if constexpr (std::is_same_v<T, float>) {
      if (b_.dtype == &float32) return b_.f32() + batch * b_.strides[0] + row * b_.strides[1];
    }
    decode<T>(b_, batch, row, false, std::span(b_row_).first(b_.shape[2]));
    if (per_channel_ && std::is_same_v<T, float>) {
      for (int64_t t = 0; t < b_.shape[2]; ++t) b_row_[t] *= b_scale_[g_.trans_b ? row : t];
    }
    return b_row_.data();
  }

  // sums = rows [first,first+count) of op(a) times op(b).
  void add_products(int64_t batch, int64_t first, int64_t count) {
    for (int64_t r = 0; r < count; ++r) read_a(batch, first + r, r);
    std::fill(sums_.begin(), sums_.end(), T{0});
    const bool along_n = g_.prepack || !g_.trans_b;
    for (int64_t row = 0; row < (along_n ? g_.k : cols_); ++row) {
      const T* const b = row_of_b(batch, row);
      for (int64_t r = 0; r < count; ++r) {
        const T* const a = a_rows_.data() + r * g_.k;
        T* const sums = sums_.data() + r * cols_;
        if (along_n) {
          const T x = a[row];
          for (int64_t j = 0; j < cols_; ++j) sums[j] += x * b[j];
        } else {
          T sum = 0;
          for (int64_t p = 0; p < g_.k; ++p) sum += a[p] * b[p];
          sums[row] = sum;
        }
      }
    }
  }

  void read_a(int64_t batch, int64_t i, int64_t place) {
    const std::span<T> to(a_rows_.data() + place * g_.k, static_cast<std::size_t>(g_.k));
    if (!dynamic_) return decode<T>(a_, batch, i, g_.trans_a, to);
    const auto row = std::span(numbers_).first(to.size());
    decode<double>(a_, batch, i, g_.trans_a, row);
    // Quotients of a row by its step or, of T float, of each block as multiples of the block's.
    for (std::size_t p = 0; p < row.size(); p += static_cast<std::size_t>(together_)) {
      const auto part =
          row.subspan(p, std::min(static_cast<std::size_t>(together_), row.size() - p));
      step_[place] = quantise(part);
      if (std::is_same_v<T, std::int32_t>) continue;
      for (double& value : part) value *= step_[place];
    }
    std::transform(row.begin(), row.end(), to.begin(),
                   [](double value) { return static_cast<T>(value); });
  }
  // Returns the step; what is not finite has no integers.
  static float quantise(std::span<double> values) {
    std::uint32_t largest = 0;
    for (const double value : values) {
      largest =
          std::max(largest, std::bit_cast<std::uint32_t>(std::fabs(static_cast<float>(value))));
    }
    const QuantisationStep by = quantisation_step(largest);
    const bool usable = by.finite && by.step > 0;
    for (double& value : values) value = usable ? std::nearbyint(value / by.step) : 0;
    return by.step;
  }

  void store(int64_t batch, int64_t i, int64_t place) {
    auto* const to = static_cast<std::byte*>(c_.data) +
                     c_.dtype->bytes(batch * c_.strides[0] + i * c_.strides[1]);
    const T* const sums = sums_.data() + place * cols_;
    if (c_.dtype == &int32) {
      for (int64_t j = 0; j < g_.n; ++j) {
        reinterpret_cast<std::int32_t*>(to)[j] = static_cast<std::int32_t>(sums[j]);
      }
      return;
    }
    const T* const own = sums + (g_.gate ? g_.n : 0);
    for (int64_t j = 0; j < g_.n; ++j) {
      auto value = static_cast<float>(own[j]);
      if (dynamic_ && per_channel_) value *= step_[place] * b_scale_[j];
      c_row_[j] = g_.reads_ab() ? g_.alpha * value : 0.0f;
    }
    if (g_.reads_c0()) {
      decode<float>(c0_, batch, i, false, added_);
      for (int64_t j = 0; j < g_.n; ++j) c_row_[j] += g_.beta * added_[j];
    }
    if (g_.gate && g_.reads_ab()) {
      for (int64_t j = 0; j < g_.n; ++j) {
        c_row_[j] *=
            common::activated_plainly(common::Activation::silu, static_cast<float>(sums[j]));
      }
    }
    if (residual_.data != nullptr) decode<float>(residual_, batch, i, false, added_);
    for (const Epilogue::Op op : g_.epilogue.ops()) {
      for (int64_t j = 0; j < g_.n; ++j) c_row_[j] = applied(op, c_row_[j], j);
    }
    std::copy(c_row_.begin(), c_row_.end(), numbers_.begin());
    c_.dtype->encode(numbers_.data(), to, g_.n);
  }

  float applied(Epilogue::Op op, float v, int64_t j) const {
    const Epilogue& e = g_.epilogue;
    if (const auto activation = activation_of(op)) return activated_plainly(*activation, v);
    if (op == Epilogue::Op::bias) return v + bias_[j];
    if (op == Epilogue::Op::add) return v + added_[j];
    if (op == Epilogue::Op::leaky_relu) return v < 0 ? e.slope * v : v;
    return v < e.low ? e.low : v > e.high ? e.high : v;
  }

  const Gemm g_;
  const bool dynamic_, per_channel_;
  const int64_t together_;  // elements of a row that share a step
  const int64_t cols_;      // of op(b)
  std::vector<T> a_rows_, b_row_, sums_, packed_;
  std::vector<float> c_row_, added_;
  std::vector<double> numbers_;  // on their way to another format
  float step_[rows_together] = {};
  std::vector<float> kept_scale_;  // of prepack=1
  const float *b_scale_ = nullptr, *bias_ = nullptr;
  View a_, b_, c0_, residual_, c_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands& constants) {
  const bool integers =
      env.math == math_int8.name ||
      (env.math == math_int8_dynamic.name && problem.dtype("b_type") == &int8_per_channel);
  if (integers) return std::make_unique<ScalarPlan<std::int32_t>>(problem, env, constants);
  return std::make_unique<ScalarPlan<float>>(problem, env, constants);
}

constexpr const Math* maths[] = {&fp32, &math_bf16, &math_f16, &math_int8, &math_int8_dynamic};

}  // namespace

const Variant scalar = {.name = "scalar",
                        .kernel = &kernel,
                        .backend = &scalar::backend,
                        .threads = Threads::one,
                        .tunables = {},
                        .unsupported = unrounded_operands,
                        .tunings = no_tunings,
                        .plan = plan,
                        .maths = maths,
                        .dtypes = all_types};

}  // namespace rooflane::gemm
