// attention/scalar: plain loops, one query after the other, auto-vectorisation off: the baseline.
// Read it to learn what the others compute. Next: blas.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/buffer.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/common/scalar_variant.hpp"

namespace rooflane::attention {
namespace {

class ScalarPlan final : public Plan {
 public:
  explicit ScalarPlan(const Problem& problem)
      : Plan(problem),
        s_(problem),
        weights_(static_cast<std::size_t>(s_.kv_len) * sizeof(float)),
        row_(static_cast<std::size_t>(std::max(s_.head_dim, s_.v_dim))),
        query_(static_cast<std::size_t>(s_.head_dim)),
        result_(static_cast<std::size_t>(s_.v_dim)),
        keys_(converts() ? static_cast<std::size_t>(s_.kv_len * s_.head_dim) : 0),
        values_(converts() ? static_cast<std::size_t>(s_.kv_len * s_.v_dim) : 0) {}

  void run() override {
    for (std::int64_t batch = 0; batch < s_.batch; ++batch) {
      const Sizes s = in_.sizes_of(s_, batch);
      for (std::int64_t head = 0; head < s_.heads; ++head) {
        const std::int64_t kv_head = head / s_.group();
        if (converts() && head % s_.group() == 0) {
          decode(in_.stored_k, batch, kv_head, 0, s.kv_len, s_.head_dim, keys_.data());
          decode(in_.stored_v, batch, kv_head, 0, s.kv_len, s_.v_dim, values_.data());
        }
        const Rows k = converts() ? Rows{keys_.data(), s_.head_dim}
                                  : Rows{in_.k.matrix(batch, kv_head), in_.k.row_stride};
        const Rows v = converts() ? Rows{values_.data(), s_.v_dim}
                                  : Rows{in_.v.matrix(batch, kv_head), in_.v.row_stride};
        for (std::int64_t i = 0; i < s_.q_len; ++i) {
          decode(in_.stored_q, batch, head, i, 1, s.head_dim, query_.data());
          attend(s, i, query_.data(), k, v, result_.data());
          std::copy(result_.begin(), result_.end(), row_.begin());
          s.type->encode(row_.data(), in_.stored_o.row(batch, head, i), s.v_dim);
        }
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = "baseline";
    facts.workspace_bytes =
        weights_.bytes() + row_.size() * sizeof(double) +
        (query_.size() + result_.size() + keys_.size() + values_.size()) * sizeof(float);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { in_ = Bound(operands, s_); }

 private:
  struct Rows {
    const float* data;
    std::int64_t stride;
    const float* row(std::int64_t j) const { return data + j * stride; }
  };

  bool converts() const { return s_.kv_type != &float32; }
  // `count` rows of a head from `first` on as float32, one after another.
  void decode(const StoredHeads& heads, std::int64_t batch, std::int64_t head, std::int64_t first,
              std::int64_t count, std::int64_t width, float* to) {
    for (std::int64_t j = first; j < first + count; ++j) {
      heads.dtype->decode(heads.row(batch, head, j), row_.data(), width);
      for (std::int64_t d = 0; d < width; ++d) *to++ = static_cast<float>(row_[d]);
    }
  }

  // Query i, q [head_dim], over the keys that it sees.
  void attend(const Sizes& s, std::int64_t i, const float* q, const Rows& k, const Rows& v,
              float* o) {
    const auto scale = static_cast<float>(s.scale), cap = static_cast<float>(s.softcap);
    const std::int64_t begin = s.first_key(i), end = s.end_key(i);
    float* w = weights_.f32();
    for (std::int64_t d = 0; d < s.v_dim; ++d) o[d] = 0;
    if (end == 0) return;

    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = begin; j < end; ++j) {
      float dot = 0;
      for (std::int64_t d = 0; d < s.head_dim; ++d) dot += q[d] * k.row(j)[d];
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
      for (std::int64_t d = 0; d < s.v_dim; ++d) o[d] += w[j] * v.row(j)[d];
    }
    for (std::int64_t d = 0; d < s.v_dim; ++d) o[d] /= sum;
  }

  Sizes s_;
  Buffer weights_;                     // scores, then weights, of one query
  std::vector<double> row_;            // one of any operand
  std::vector<float> query_, result_;  // rows of q and o
  std::vector<float> keys_, values_;
  Bound in_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) {
  return std::make_unique<ScalarPlan>(problem);
}

}  // namespace

const Variant scalar = common::scalar_variant(kernel, plan, all_with_lengths);

}  // namespace rooflane::attention
