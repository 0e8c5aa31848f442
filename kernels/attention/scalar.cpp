// attention/scalar: plain loops, one query after the other, auto-vectorisation off. The honest
// floor; read it to learn what the others compute. Next: blas.cpp.
#include <cmath>
#include <limits>

#include "backends/scalar.hpp"
#include "core/buffer.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/attention.hpp"

namespace rooflane::attention {
namespace {

class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem), s_(problem), weights_(static_cast<std::size_t>(s_.kv_len) * sizeof(float)) {}

  void run() override {
    for (std::int64_t batch = 0; batch < s_.batch; ++batch) {
      const Sizes s = in_.sizes_of(s_, batch);
      for (std::int64_t head = 0; head < s_.heads; ++head) {
        const std::int64_t kv_head = head / s_.group();
        for (std::int64_t i = 0; i < s_.q_len; ++i) {
          attend(s, i, in_.q.matrix(batch, head) + i * in_.q.row_stride,
                 in_.k.matrix(batch, kv_head), in_.v.matrix(batch, kv_head),
                 in_.o.matrix(batch, head) + i * in_.o.row_stride);
        }
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.workspace_bytes = weights_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { in_ = Bound(operands, s_); }

 private:
  // Query i, q [head_dim], over the keys that it sees.
  void attend(const Sizes& s, std::int64_t i, const float* q, const float* k, const float* v,
              float* o) {
    const auto scale = static_cast<float>(s.scale), cap = static_cast<float>(s.softcap);
    const std::int64_t begin = s.first_key(i), end = s.end_key(i);
    float* w = weights_.f32();
    for (std::int64_t d = 0; d < s.v_dim; ++d) o[d] = 0;
    if (end == 0) return;

    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = begin; j < end; ++j) {
      float dot = 0;
      for (std::int64_t d = 0; d < s.head_dim; ++d) dot += q[d] * k[j * in_.k.row_stride + d];
      w[j] = scale * dot;
      if (cap != 0) w[j] = cap * std::tanh(w[j] / cap);
      if (s.mask) w[j] += in_.mask.row(i)[j];
      // A NaN score need not win here: its own weight is NaN whatever the maximum.
      largest = std::max(largest, w[j]);
    }
    // All -inf: (-inf) - (-inf) is NaN, as it must be.
    float sum = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      w[j] = std::exp(w[j] - largest);
      sum += w[j];
      for (std::int64_t d = 0; d < s.v_dim; ++d) o[d] += w[j] * v[j * in_.v.row_stride + d];
    }
    for (std::int64_t d = 0; d < s.v_dim; ++d) o[d] /= sum;
  }

  Sizes s_;
  Buffer weights_;  // scores, then weights, of one query
  Bound in_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return std::make_unique<ScalarPlan>(problem);
}

}  // namespace

const Variant scalar = {
    .name = "scalar",
    .kernel = &kernel,
    .backend = &scalar::backend,
    .threads = Threads::one,
    .tunables = {},
    .unsupported = nullptr,
    .tunings = no_tunings,
    .plan = plan,
    .dtypes = float32_with_lengths,
};

}  // namespace rooflane::attention
