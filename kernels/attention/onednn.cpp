// attention/onednn: matmul, softmax and matmul primitives per head and block of queries, scores in
// a buffer. Plain loops mask what a query may not see, before and after the softmax. One query
// (decode) goes with the others of its group, so that each kv head is read once. Next: hwy.cpp.
#include "backends/onednn.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/buffer.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/attention.hpp"

namespace rooflane::attention {
namespace {

constexpr Tunable tunables[] = {
    {"q_block", "queries per pair of products; scores are [q_block,keys seen]", 1, 1 << 16},
};

// With one query each, the heads of a group are the rows of one matrix: they share k and v, and
// causal masking hides nothing from the last query.
Sizes regrouped(Sizes s) {
  if (s.q_len != 1 || s.group() == 1) return s;
  s.q_len = s.group();
  s.heads = s.kv_heads;
  s.causal = false;
  return s;
}

// A matrix [rows,cols] as oneDNN takes it; rows that overlap are copied, one head at a time.
class Source {
 public:
  void bind(const Heads& heads, std::int64_t rows, std::int64_t cols) {
    heads_ = heads;
    rows_ = rows;
    cols_ = cols;
    const bool fits = rows <= 1 || heads.row_stride >= cols;
    copy_ = fits ? Buffer() : Buffer(static_cast<std::size_t>(rows * cols) * sizeof(float));
  }
  const float* matrix(std::int64_t batch, std::int64_t head) {
    const float* data = heads_.matrix(batch, head);
    if (copy_.bytes() == 0) return data;
    for (std::int64_t i = 0; i < rows_; ++i) {
      std::copy_n(data + i * heads_.row_stride, cols_, copy_.f32() + i * cols_);
    }
    return copy_.f32();
  }
  std::int64_t stride() const {
    return copy_.bytes() > 0 || rows_ <= 1 ? cols_ : heads_.row_stride;
  }
  std::size_t bytes() const { return copy_.bytes(); }

 private:
  Heads heads_;
  std::int64_t rows_ = 0, cols_ = 0;
  Buffer copy_;
};

onednn::Desc matrix_desc(std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                         std::int64_t column_stride) {
  const std::int64_t dims[] = {rows, cols}, strides[] = {row_stride, column_stride};
  const auto desc = onednn::describe(dims, strides);
  if (!desc) throw unavailable_error("attention: oneDNN cannot express the strides of an operand");
  return *desc;
}

// Queries [first, first+count) of every head.
struct Block {
  std::int64_t first, count;
  std::int64_t common;  // keys that every one of them sees
  std::int64_t seen;    // keys that the last of them sees
  std::optional<onednn::Matmul> scores;
  onednn::Call softmax;
  std::optional<onednn::Matmul> values;         // over `seen` keys
  std::optional<onednn::Matmul> common_values;  // over `common` keys, if fewer
};

class OnednnPlan final : public Plan {
 public:
  OnednnPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        given_(problem),
        s_(regrouped(given_)),
        tuning_(tuning),
        q_block_(std::min(tuning.get("q_block", 1), std::max<std::int64_t>(s_.q_len, 1))),
        threads_(env.threads),
        scores_(static_cast<std::size_t>(q_block_ * s_.kv_len) * sizeof(float)) {
    Bound dense;
    for (Heads* heads : {&dense.q, &dense.k, &dense.v, &dense.o}) heads->row_stride = s_.head_dim;
    bind_heads(dense);
  }

  void run() override {
    onednn::set_threads(threads_);
    for (std::int64_t batch = 0; batch < s_.batch; ++batch) {
      for (std::int64_t kv_head = 0; kv_head < s_.kv_heads; ++kv_head) {
        const float* k = k_.matrix(batch, kv_head);
        const float* v = v_.matrix(batch, kv_head);
        for (std::int64_t g = 0; g < s_.group(); ++g) {
          const std::int64_t head = kv_head * s_.group() + g;
          const float* q = q_.matrix(batch, head);
          for (Block& block : blocks_) attend(block, q, k, v, o_.matrix(batch, head));
        }
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = onednn::description();
    facts.tuning = tuning_;
    facts.workspace_bytes = scores_.bytes() + q_.bytes() + k_.bytes() + v_.bytes();
    for (const Block& block : blocks_) {
      if (!block.scores) continue;
      facts.workspace_bytes += block.scores->call.scratch_bytes() + block.softmax.scratch_bytes() +
                               block.values->call.scratch_bytes();
      if (block.common_values) facts.workspace_bytes += block.common_values->call.scratch_bytes();
    }
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    Bound bound(operands, given_);
    if (s_.heads != given_.heads) {
      for (Heads* heads : {&bound.q, &bound.o}) {
        heads->row_stride = heads->head_stride;
        heads->head_stride *= given_.group();
      }
    }
    bind_heads(bound);
  }

 private:
  void bind_heads(const Bound& bound) {
    q_.bind(bound.q, s_.q_len, s_.head_dim);
    k_.bind(bound.k, s_.kv_len, s_.head_dim);
    v_.bind(bound.v, s_.kv_len, s_.head_dim);
    o_ = bound.o;
    onednn::set_threads(threads_);
    blocks_.clear();
    for (std::int64_t i = 0; i < s_.q_len; i += q_block_) blocks_.push_back(block_at(i));
  }

  Block block_at(std::int64_t first) const {
    const std::int64_t count = std::min(q_block_, s_.q_len - first), d = s_.head_dim;
    Block block{first, count, s_.end_key(first), s_.end_key(first + count - 1), {}, {}, {}, {}};
    if (block.seen == 0) return block;
    const onednn::Desc scores = matrix_desc(count, block.seen, block.seen, 1);
    const onednn::Desc out = matrix_desc(count, d, o_.row_stride, 1);
    block.scores.emplace(matrix_desc(count, d, q_.stride(), 1),
                         matrix_desc(d, block.seen, 1, k_.stride()), scores,
                         static_cast<float>(s_.scale));
    block.softmax = onednn::softmax(scores);
    block.values.emplace(scores, matrix_desc(block.seen, d, v_.stride(), 1), out);
    if (block.common < block.seen && block.common > 0) {
      block.common_values.emplace(matrix_desc(count, block.common, block.seen, 1),
                                  matrix_desc(block.common, d, v_.stride(), 1), out);
    }
    return block;
  }

  static void multiply(onednn::Call& call, const float* src, const float* weights, float* dst) {
    call.set(DNNL_ARG_SRC, src);
    call.set(DNNL_ARG_WEIGHTS, weights);
    call.set(DNNL_ARG_DST, dst);
    call.run();
  }

  // o is the head's output [q_len,head_dim].
  void attend(Block& block, const float* q, const float* k, const float* v, float* o) {
    float* scores = scores_.f32();
    const std::int64_t count = block.count, common = block.common, seen = block.seen;
    o += block.first * o_.row_stride;
    if (seen == 0) {
      for (std::int64_t i = 0; i < count; ++i) zero(o, i);
      return;
    }
    multiply(block.scores->call, q + block.first * q_.stride(), k, scores);
    const auto for_unseen = [&](float value) {
      for (std::int64_t i = 0; common < seen && i < count; ++i) {
        std::fill(scores + i * seen + s_.end_key(block.first + i), scores + (i + 1) * seen, value);
      }
    };
    for_unseen(-std::numeric_limits<float>::infinity());
    block.softmax.set(DNNL_ARG_SRC, scores);
    block.softmax.set(DNNL_ARG_DST, scores);
    block.softmax.run();
    for_unseen(0);

    // Weights of unseen keys are zero, which hides their v from a query only if v is finite.
    if (all_finite(v, common, seen)) {
      multiply(block.values->call, scores, v, o);
      return;
    }
    if (common > 0) multiply(block.common_values->call, scores, v, o);
    for (std::int64_t i = 0; i < count; ++i) {
      if (common == 0) zero(o, i);
      for (std::int64_t j = common; j < s_.end_key(block.first + i); ++j) {
        const float w = scores[i * seen + j];
        for (std::int64_t d = 0; d < s_.head_dim; ++d) {
          o[i * o_.row_stride + d] += w * v[j * v_.stride() + d];
        }
      }
    }
  }

  void zero(float* o, std::int64_t i) const {
    std::fill_n(o + i * o_.row_stride, s_.head_dim, 0.0F);
  }

  bool all_finite(const float* v, std::int64_t first, std::int64_t last) const {
    // x - x is 0, or NaN where x is NaN or infinite; NaN then stays in the sum.
    float sum = 0;
    for (std::int64_t j = first; j < last; ++j) {
      const float* row = v + j * v_.stride();
      for (std::int64_t d = 0; d < s_.head_dim; ++d) sum += row[d] - row[d];
    }
    return sum == 0;
  }

  const Sizes given_;
  const Sizes s_;
  const Tuning tuning_;
  const std::int64_t q_block_;
  const int threads_;
  Buffer scores_;  // [q_block,kv_len]
  Source q_, k_, v_;
  Heads o_;
  std::vector<Block> blocks_;
};

// The score buffer should stay in the L2 of the threads that share it; 64 rows still amortise a
// product's start, more than 512 only make causal blocks coarse.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const Sizes s(problem);
  const auto l2 = static_cast<std::int64_t>(machine().l2_bytes) * env.threads;
  const std::int64_t row_bytes = std::max<std::int64_t>(s.kv_len, 1) * sizeof(float);
  const std::int64_t guess = std::clamp<std::int64_t>(l2 / row_bytes / 64 * 64, 64, 512);
  std::vector<Tuning> space = {{{"q_block", guess}}};
  for (std::int64_t q_block : {64, 128, 256, 512}) {
    if (q_block != guess) space.push_back({{"q_block", q_block}});
  }
  return space;
}

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = option_refusal(problem)) return reason;
  return onednn::unsupported_anywhere(problem, env);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  return std::make_unique<OnednnPlan>(problem, complete_tuning(onednn, problem, env, tuning), env);
}

}  // namespace

const Variant onednn = {
    .name = "onednn",
    .kernel = &kernel,
    .backend = &onednn::backend,
    .threads = Threads::many,
    .tunables = tunables,
    .unsupported = unsupported,
    .tunings = tunings,
    .plan = plan,
};

}  // namespace rooflane::attention
