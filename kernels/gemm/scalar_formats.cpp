// GEMM, variant `scalar`, for integers, quantised weights and maths beside fp32: rows of op(a) and
// columns of op(b) are decoded one by one, and multiplied by plain dot products; int8-dynamic with
// weights in blocks as products of the real numbers that both stand for. prepack=1: op(b) decoded.
// Next: unit_product.hpp for what the instructions made for it do.
#include "kernels/gemm/scalar_formats.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/quantised_rows.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

// k numbers of one row of op(a) or column of op(b), which lie along memory or across it.
void decode(const View& x, int64_t batch, int64_t index, bool along_memory, std::span<double> to) {
  const NumberFormat& format = *x.dtype;
  const auto* const data = static_cast<const std::byte*>(x.data);
  const int64_t start = batch * x.strides[0];
  if (along_memory) {
    format.decode(data + format.bytes(start + index * x.strides[1]), to.data(), std::ssize(to));
    return;
  }
  for (int64_t p = 0; p < std::ssize(to); ++p) {
    format.decode(data + format.bytes(start + p * x.strides[1] + index), &to[p], 1);
  }
}

// T: what is multiplied and added, float or for integers int32.
template <class T>
class DecodingPlan final : public Plan {
 public:
  DecodingPlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem),
        g_(problem),
        dynamic_(env.math == math_int8_dynamic.name),
        together_(quantised_together(problem)),
        numbers_(static_cast<std::size_t>(std::max(g_.k, g_.n))),
        column_(static_cast<std::size_t>(g_.k)),
        rows_(static_cast<std::size_t>(rows_together * g_.k)),
        sums_(static_cast<std::size_t>(rows_together * g_.n)) {
    if (!g_.prepack) return;
    b_ = constants.at("b");
    if (is_per_channel()) {
      const float* const scale = constants.at("b_scale").f32();
      kept_scale_.assign(scale, scale + g_.n);
      b_scale_ = kept_scale_.data();
    }
    if (g_.empty() || !g_.reads_ab()) return;
    packed_.reserve(static_cast<std::size_t>(g_.batch * g_.k * g_.n));
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t j = 0; j < g_.n; ++j) {
        read_column(batch, j);
        packed_.insert(packed_.end(), column_.begin(), column_.end());
      }
    }
  }

  void run() override {
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t i = 0; i < g_.m; i += rows_together) {
        few_rows(batch, i, std::min(rows_together, g_.m - i));
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
    facts.workspace_bytes = numbers_.size() * sizeof(double) +
                            (column_.size() + rows_.size() + sums_.size()) * sizeof(T);
    facts.packed_bytes = packed_.size() * sizeof(T) + kept_scale_.size() * sizeof(float);
    return facts;
  }

 private:
  // So many that decoding a column counts little beside their products.
  static constexpr int64_t rows_together = 32;

  void on_bind(const Operands& operands) override {
    a_ = operands.at("a");
    if (!g_.prepack) {
      b_ = operands.at("b");
      if (is_per_channel()) b_scale_ = operands.at("b_scale").f32();
    }
    if (g_.reads_c0()) c0_ = operands.at("c0");
    c_ = operands.at("c");
  }

  bool is_per_channel() const { return problem().dtype("b_type") == &int8_per_channel; }

  void few_rows(int64_t batch, int64_t first, int64_t count) {
    std::fill(sums_.begin(), sums_.end(), T{0});
    if (g_.reads_ab()) {
      for (int64_t i = 0; i < count; ++i) read_row(batch, first + i, i);
      for (int64_t j = 0; j < g_.n; ++j) {
        const T* column = column_.data();
        if (g_.prepack) {
          column = packed_.data() + (batch * g_.n + j) * g_.k;
        } else {
          read_column(batch, j);
        }
        for (int64_t i = 0; i < count; ++i) {
          const T* const row = rows_.data() + i * g_.k;
          T sum = 0;
          for (int64_t p = 0; p < g_.k; ++p) sum += row[p] * column[p];
          sums_[i * g_.n + j] = sum;
        }
      }
    }
    for (int64_t i = 0; i < count; ++i) store(batch, first + i, i);
  }

  void read_row(int64_t batch, int64_t i, int64_t place) {
    const std::span<double> values(numbers_.data(), static_cast<std::size_t>(g_.k));
    decode(a_, batch, i, !g_.trans_a, values);
    if (dynamic_) quantise(values, place);
    std::transform(values.begin(), values.end(), rows_.begin() + place * g_.k,
                   [](double value) { return static_cast<T>(value); });
  }

  // Quotients of a row by its step or, of T float, of each block as multiples of the block's step.
  void quantise(std::span<double> row, int64_t place) {
    for (std::size_t p = 0; p < row.size(); p += static_cast<std::size_t>(together_)) {
      const auto part =
          row.subspan(p, std::min(static_cast<std::size_t>(together_), row.size() - p));
      step_[place] = quantise_part(part);
      if (std::is_same_v<T, std::int32_t>) continue;
      for (double& value : part) value *= step_[place];
    }
  }
  // Returns the step; what is not finite has no integers.
  static float quantise_part(std::span<double> values) {
    double largest = 0;
    for (const double value : values) {
      if (std::fabs(value) > largest || std::isnan(value)) largest = std::fabs(value);
    }
    const auto step = static_cast<float>(largest / 127);
    const bool usable = std::isfinite(largest) && step > 0;
    for (double& value : values) value = usable ? std::nearbyint(value / step) : 0;
    return std::isfinite(largest) ? step : NAN;
  }

  void read_column(int64_t batch, int64_t j) {
    const std::span<double> values(numbers_.data(), static_cast<std::size_t>(g_.k));
    decode(b_, batch, j, g_.trans_b, values);
    const double scale = is_per_channel() && std::is_same_v<T, float> ? b_scale_[j] : 1;
    std::transform(values.begin(), values.end(), column_.begin(),
                   [&](double value) { return static_cast<T>(value * scale); });
  }

  void store(int64_t batch, int64_t i, int64_t place) {
    const int64_t row = batch * c_.strides[0] + i * c_.strides[1];
    const T* const sums = sums_.data() + place * g_.n;
    if (c_.dtype == &int32) {
      std::copy_n(sums, g_.n, c_.as<std::int32_t>() + row);
      return;
    }
    if (g_.reads_c0()) {
      const int64_t from = batch * c0_.strides[0] + i * c0_.strides[1];
      c0_.dtype->decode(static_cast<const std::byte*>(c0_.data) + c0_.dtype->bytes(from),
                        numbers_.data(), g_.n);
    } else {
      std::fill_n(numbers_.begin(), g_.n, 0.0);
    }
    for (int64_t j = 0; j < g_.n; ++j) {
      auto value = static_cast<float>(sums[j]);
      if (dynamic_ && is_per_channel() && g_.reads_ab()) value *= step_[place] * b_scale_[j];
      const float product = g_.reads_ab() ? g_.alpha * value : 0.0f;
      const float start = g_.reads_c0() ? g_.beta * static_cast<float>(numbers_[j]) : 0.0f;
      numbers_[j] = product + start;
    }
    c_.dtype->encode(numbers_.data(), static_cast<std::byte*>(c_.data) + c_.dtype->bytes(row),
                     g_.n);
  }

  const Gemm g_;
  const bool dynamic_;
  const int64_t together_;  // elements of a row that share a step
  std::vector<double> numbers_;
  std::vector<T> column_, rows_, sums_, packed_;
  float step_[rows_together] = {};
  std::vector<float> kept_scale_;  // of prepack=1
  const float* b_scale_ = nullptr;
  View a_, b_, c0_, c_;
};

bool is_of_integers(const Problem& problem, const Environment& env) {
  return env.math == math_int8.name ||
         (env.math == math_int8_dynamic.name && problem.dtype("b_type") == &int8_per_channel);
}

}  // namespace

bool needs_decoding(const Problem& problem, const Environment& env) {
  return is_quantised(problem.dtype("b_type")) || is_of_integers(problem, env);
}

std::unique_ptr<Plan> decoding_plan(const Problem& problem, const Environment& env,
                                    const Operands& constants) {
  if (is_of_integers(problem, env)) {
    return std::make_unique<DecodingPlan<std::int32_t>>(problem, env, constants);
  }
  return std::make_unique<DecodingPlan<float>>(problem, env, constants);
}

}  // namespace rooflane::gemm
