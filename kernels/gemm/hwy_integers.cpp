// GEMM, variant `hwy`, for 8-bit integers (math int8) and for floats whose rows are quantised in
// the run (int8-dynamic), at every ISA target: operands are widened to int16, whose products are
// added in pairs to int32 (pmaddwd), exactly and without saturation. a is widened whole, b in
// blocks of columns that stay in L2. What vpdpbusd and AMX do: avx512.cpp, amx.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_integers.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR  // no pairs of lanes
template <int rows, int cols>
HWY_INLINE void DotTile(const std::int16_t* a, const std::int16_t* b, std::int64_t k,
                        std::int32_t* to, std::int64_t ld) {
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t p = 0; p < k; ++p) sum += a[i * k + p] * b[j * k + p];
      to[i * ld + j] = sum;
    }
  }
}
#else
using DI = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<DI>;

// sums[rows][cols] of vectors along k: 2 × 4 accumulators beside 6 operands fit in 16 registers.
template <int rows, int cols>
HWY_INLINE void DotTile(const std::int16_t* a, const std::int16_t* b, std::int64_t k,
                        std::int32_t* to, std::int64_t ld) {
  const DI d;
  const hn::Repartition<std::int16_t, DI> d16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d16));
  VI even[rows][cols], odd[rows][cols];
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < cols; ++j) even[i][j] = odd[i][j] = hn::Zero(d);
  }
  for (std::int64_t p = 0; p < k; p += lanes) {
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i) {
      const auto row = hn::LoadU(d16, a + i * k + p);
#pragma GCC unroll 4
      for (int j = 0; j < cols; ++j) {
        even[i][j] = hn::ReorderWidenMulAccumulate(d, row, hn::LoadU(d16, b + j * k + p),
                                                   even[i][j], odd[i][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < cols; ++j) {
      to[i * ld + j] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[i][j], odd[i][j])));
    }
  }
}

#endif

// `k`, a multiple of 32, is also how far vectors are apart.
void MultiplyShort(const std::int16_t* a, std::int64_t rows, const std::int16_t* b,
                   std::int64_t cols, std::int64_t k, std::int32_t* to, std::int64_t ld) {
  for (std::int64_t i = 0; i < rows; i += 2) {
    const std::int16_t* const row = a + i * k;
    std::int32_t* const sums = to + i * ld;
    std::int64_t j = 0;
    if (i + 2 <= rows) {
      for (; j + 4 <= cols; j += 4) DotTile<2, 4>(row, b + j * k, k, sums + j, ld);
      for (; j < cols; ++j) DotTile<2, 1>(row, b + j * k, k, sums + j, ld);
    } else {
      for (; j < cols; ++j) DotTile<1, 1>(row, b + j * k, k, sums + j, ld);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/float16.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_converted.hpp"
#include "kernels/gemm/quantised_rows.hpp"

namespace rooflane::gemm {

HWY_EXPORT(MultiplyShort);

namespace {

using std::int64_t;

int64_t round_up(int64_t x, int64_t y) { return (x + y - 1) / y * y; }

std::string widened_path(std::int64_t target) {
  const std::string path = fma_path(target);
  if (path == "avx512-fma") return "avx512-pmaddwd";
  if (path == "avx2-fma") return "avx2-pmaddwd";
  return path.starts_with("ss") ? path + "-pmaddwd" : path;
}

// Vectors of k elements of one operand, `outer` apart, elements `inner` apart.
struct Vectors {
  View view;
  bool along_memory = true;
  int64_t inner() const { return along_memory ? 1 : view.strides[1]; }
  int64_t start(int64_t batch, int64_t index) const {
    return batch * view.strides[0] + index * (along_memory ? view.strides[1] : 1);
  }
  template <class T>
  const T* at(int64_t batch, int64_t index) const {
    return view.as<T>() + start(batch, index);
  }
};

template <class T>
void widen(const T* from, int64_t inner, int64_t count, std::int16_t* to) {
  for (int64_t p = 0; p < count; ++p) to[p] = static_cast<std::int16_t>(int{from[p * inner]});
}

// A row's integers; returns its step.
template <class T>
float quantise(const T* from, int64_t inner, int64_t count, std::int16_t* to) {
  std::uint32_t most = 0;
  for (int64_t p = 0; p < count; ++p) {
    const auto value = static_cast<float>(from[p * inner]);
    most = std::max(most, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFF);
  }
  const QuantisationStep by = quantisation_step(most);
  for (int64_t p = 0; p < count; ++p) {
    const float value = by.finite ? static_cast<float>(from[p * inner]) * by.inverse : 0;
    to[p] = static_cast<std::int16_t>(std::nearbyint(value));
  }
  return by.step;
}

class IntegerPlan final : public Plan {
 public:
  IntegerPlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem),
        g_(problem),
        env_(env),
        target_(resolve_isa(env.isa)),
        multiply_(ROOFLANE_HWY_FUNCTION(MultiplyShort, target_)),
        threads_(std::max(env.threads, 1)),
        dynamic_(env.math == math_int8_dynamic.name),
        k_(round_up(g_.k, 32)),
        width_(columns_together()) {
    // Zeros behind k, which no run touches.
    a_rows_.assign(static_cast<std::size_t>(g_.m * k_), 0);
    b_rows_.assign(static_cast<std::size_t>(threads_ * width_ * k_), 0);
    sums_.resize(static_cast<std::size_t>(threads_ * g_.m * width_));
    values_.resize(static_cast<std::size_t>(threads_ * width_));
    if (dynamic_) steps_.resize(static_cast<std::size_t>(g_.m));
    if (!g_.prepack) return;
    if (constants.has("b_scale")) {
      const float* const scale = constants.at("b_scale").f32();
      kept_scale_.assign(scale, scale + g_.n);
      scale_ = kept_scale_.data();
    }
    b_ = {constants.at("b"), g_.trans_b};
    kept_.assign(static_cast<std::size_t>(g_.batch * g_.n * k_), 0);
    for (int64_t row = 0; row < g_.batch * g_.n && g_.reads_ab(); ++row) {
      widen(b_.at<std::int8_t>(row / g_.n, row % g_.n), b_.inner(), g_.k, kept_.data() + row * k_);
    }
  }

  void run() override {
    if (g_.empty()) return;
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      if (g_.reads_ab()) read_a(batch);
      const int64_t tasks = (g_.n + width_ - 1) / width_;
      parallel_for(env_.pool, threads_, tasks, [&](int64_t task, int thread) {
        block(batch, task * width_, std::min(width_, g_.n - task * width_), thread);
      });
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    if (!kept_.empty()) list.push_back(std::as_bytes(std::span(kept_)));
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.path = widened_path(target_);
    facts.packed_bytes = kept_.size() * sizeof(std::int16_t) + kept_scale_.size() * sizeof(float);
    facts.workspace_bytes = (a_rows_.size() + b_rows_.size()) * sizeof(std::int16_t) +
                            (sums_.size() + values_.size() + steps_.size()) * sizeof(float);
    return facts;
  }

 private:
  // As int16, half of L2.
  int64_t columns_together() const {
    const auto l2 = static_cast<int64_t>(std::max<std::size_t>(machine().l2_bytes, 256 << 10));
    const int64_t fitting = l2 / 2 / (2 * std::max<int64_t>(k_, 1));
    const int64_t of_thread = (g_.n + threads_ - 1) / threads_;
    return std::max<int64_t>(1, std::min(std::clamp<int64_t>(fitting, 4, 256), of_thread));
  }

  void on_bind(const Operands& operands) override {
    a_ = {operands.at("a"), !g_.trans_a};
    if (!g_.prepack) {
      b_ = {operands.at("b"), g_.trans_b};
      if (operands.has("b_scale")) scale_ = operands.at("b_scale").f32();
    }
    c_ = operands.at("c");
    if (g_.reads_c0()) c0_ = operands.at("c0");
  }

  void read_a(int64_t batch) {
    parallel_for(env_.pool, threads_, g_.m, [&](int64_t i, int) {
      std::int16_t* const to = a_rows_.data() + i * k_;
      if (dynamic_) {
        steps_[i] = with_float_type(a_.view.dtype, [&](auto type) {
          return quantise(a_.at<decltype(type)>(batch, i), a_.inner(), g_.k, to);
        });
      } else if (a_.view.dtype == &uint8) {
        widen(a_.at<std::uint8_t>(batch, i), a_.inner(), g_.k, to);
      } else {
        widen(a_.at<std::int8_t>(batch, i), a_.inner(), g_.k, to);
      }
    });
  }

  void block(int64_t batch, int64_t col, int64_t cols, int thread) {
    std::int32_t* const sums = sums_.data() + thread * g_.m * width_;
    if (g_.reads_ab()) {
      const std::int16_t* b = kept_.data() + (batch * g_.n + col) * k_;
      if (!g_.prepack) {
        const PhaseTimer timer(RunPhase::pack);
        std::int16_t* const to = b_rows_.data() + thread * width_ * k_;
        for (int64_t j = 0; j < cols; ++j) {
          widen(b_.at<std::int8_t>(batch, col + j), b_.inner(), g_.k, to + j * k_);
        }
        b = to;
      }
      multiply_(a_rows_.data(), g_.m, b, cols, k_, sums, width_);
    } else {
      std::fill_n(sums, g_.m * width_, 0);
    }
    for (int64_t i = 0; i < g_.m; ++i) {
      const int64_t row = batch * c_.strides[0] + i * c_.strides[1] + col;
      if (dynamic_) {
        store_reals(batch, i, col, cols, sums + i * width_, values_.data() + thread * width_);
      } else {
        std::copy_n(sums + i * width_, cols, c_.as<std::int32_t>() + row);
      }
    }
  }

  void store_reals(int64_t batch, int64_t i, int64_t col, int64_t cols, const std::int32_t* sums,
                   float* values) const {
    for (int64_t j = 0; j < cols; ++j) {
      const float scale = g_.reads_ab() ? steps_[i] * scale_[col + j] : 0;
      values[j] = g_.reads_ab() ? g_.alpha * (static_cast<float>(sums[j]) * scale) : 0;
    }
    with_float_type(c_.dtype, [&](auto type) {
      using C = decltype(type);
      if (g_.reads_c0()) {
        const C* const c0 = c0_.as<C>() + batch * c0_.strides[0] + i * c0_.strides[1] + col;
        for (int64_t j = 0; j < cols; ++j) values[j] += g_.beta * static_cast<float>(c0[j]);
      }
      C* const c = c_.as<C>() + batch * c_.strides[0] + i * c_.strides[1] + col;
      for (int64_t j = 0; j < cols; ++j) c[j] = static_cast<C>(values[j]);
    });
  }

  using MultiplyFunction = void (*)(const std::int16_t*, int64_t, const std::int16_t*, int64_t,
                                    int64_t, std::int32_t*, int64_t);

  const Gemm g_;
  const Environment env_;
  const int64_t target_;
  const MultiplyFunction multiply_;
  const int threads_;
  const bool dynamic_;
  const int64_t k_, width_;  // columns of a block
  Vectors a_, b_;
  const float* scale_ = nullptr;
  View c_, c0_;
  std::vector<std::int16_t> a_rows_, b_rows_, kept_;
  std::vector<std::int32_t> sums_;
  std::vector<float> values_, steps_, kept_scale_;
};

}  // namespace

std::unique_ptr<Plan> integer_plan(const Problem& problem, const Environment& env,
                                   const Operands& constants) {
  return std::make_unique<IntegerPlan>(problem, env, constants);
}

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
