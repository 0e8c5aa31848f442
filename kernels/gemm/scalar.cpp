// GEMM, variant `scalar`: plain loops on one thread, compiled without auto-vectorisation; the
// honest floor. Not tuned in any way. Next: hwy.cpp for what tiles, packing and vectors buy.
#include <memory>

#include "backends/scalar.hpp"
#include "core/buffer.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

class ScalarPlan final : public Plan {
 public:
  ScalarPlan(const Problem& problem, const Operands& constants) : Plan(problem), g_(problem) {
    if (!g_.prepack) return;
    // prepack=1: op(b) as [batch,k,n] without gaps.
    const Side from = side_b(g_, constants.at("b"));
    packed_ = Buffer(static_cast<std::size_t>(g_.batch * g_.k * g_.n) * sizeof(float));
    b_ = {packed_.f32(), g_.k * g_.n, 1, g_.n};
    float* to = packed_.f32();
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t p = 0; p < g_.k; ++p) {
        for (int64_t j = 0; j < g_.n; ++j) {
          *to++ = from.data[batch * from.batch_stride + p * from.inner + j * from.outer];
        }
      }
    }
  }

  void run() override {
    if (!g_.reads_ab()) {
      scale_only(g_, c0_, c_);
      return;
    }
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t i = 0; i < g_.m; ++i) row(batch, i);
    }
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
    facts.isa = "baseline";
    facts.packed_bytes = packed_.bytes();
    return facts;
  }

 private:
  void on_bind(const Operands& operands) override {
    a_ = side_a(g_, operands.at("a"));
    if (!g_.prepack) b_ = side_b(g_, operands.at("b"));
    if (g_.reads_c0()) c0_ = const_matrix(operands.at("c0"));
    c_ = matrix(operands.at("c"));
  }

  // One row of c: along n where rows of op(b) are contiguous, else one dot product per element.
  void row(int64_t batch, int64_t i) {
    const float* a = a_.data + batch * a_.batch_stride + i * a_.outer;
    const float* b = b_.data + batch * b_.batch_stride;
    float* c = c_.row(batch, i);
    if (b_.outer == 1) {
      for (int64_t j = 0; j < g_.n; ++j) c[j] = 0;
      for (int64_t p = 0; p < g_.k; ++p) {
        const float x = a[p * a_.inner];
        for (int64_t j = 0; j < g_.n; ++j) c[j] += x * b[p * b_.inner + j];
      }
    } else {
      for (int64_t j = 0; j < g_.n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < g_.k; ++p) sum += a[p * a_.inner] * b[p + j * b_.outer];
        c[j] = sum;
      }
    }
    for (int64_t j = 0; j < g_.n; ++j) c[j] *= g_.alpha;
    if (g_.reads_c0()) {
      const float* c0 = c0_.row(batch, i);
      for (int64_t j = 0; j < g_.n; ++j) c[j] += g_.beta * c0[j];
    }
  }

  const Gemm g_;
  Buffer packed_;
  Side a_, b_;
  Matrix<const float> c0_;
  Matrix<float> c_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands& constants) {
  return std::make_unique<ScalarPlan>(problem, constants);
}

}  // namespace

const Variant scalar = {.name = "scalar",
                        .kernel = &kernel,
                        .backend = &scalar::backend,
                        .threads = Threads::one,
                        .tunables = {},
                        .unsupported = other_math,
                        .tunings = no_tunings,
                        .plan = plan};

}  // namespace rooflane::gemm
