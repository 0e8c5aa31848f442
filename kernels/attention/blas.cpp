// attention/blas: two matrix products per head and block of queries by BLAS, scores in a buffer.
// BLAS does S = scale·Q·Kᵀ and O = P·V (cblas_sgemm, on the library's threads). Plain loops do what
// BLAS lacks: masking, softcap, maximum, exp, the sum of weights and the division by it. Keys that
// no query of a block sees are left out. Next: hwy.cpp.
#include <fmt/format.h>

#include <climits>
#include <cmath>
#include <limits>

#include "backends/cblas.hpp"
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

// A matrix as BLAS takes it: rows `ld` elements apart.
struct Matrix {
  const float* data;
  int ld;
};

// An input that BLAS cannot read in place is copied, one head at a time: its rows are closer
// together than head_dim, as in a broadcast view, or too far apart for an int.
class Source {
 public:
  void bind(const Heads& heads, std::int64_t rows, std::int64_t cols) {
    heads_ = heads;
    rows_ = rows;
    cols_ = cols;
    const bool fits = rows <= 1 || (heads.row_stride >= cols && heads.row_stride <= INT_MAX);
    copy_ = fits ? Buffer() : Buffer(static_cast<std::size_t>(rows * cols) * sizeof(float));
  }
  Matrix matrix(std::int64_t batch, std::int64_t head) {
    const float* data = heads_.matrix(batch, head);
    if (copy_.bytes() == 0) {
      const std::int64_t ld = rows_ <= 1 ? cols_ : heads_.row_stride;
      return {data, static_cast<int>(ld)};
    }
    for (std::int64_t i = 0; i < rows_; ++i) {
      std::copy_n(data + i * heads_.row_stride, cols_, copy_.f32() + i * cols_);
    }
    return {copy_.f32(), static_cast<int>(cols_)};
  }
  std::size_t bytes() const { return copy_.bytes(); }

 private:
  Heads heads_;
  std::int64_t rows_ = 0, cols_ = 0;
  Buffer copy_;
};

bool all_finite(const Matrix& m, std::int64_t first, std::int64_t last, std::int64_t cols) {
  // x - x is 0, or NaN where x is NaN or infinite; NaN then stays in the sum.
  float sum = 0;
  for (std::int64_t j = first; j < last; ++j) {
    const float* row = m.data + j * m.ld;
    for (std::int64_t d = 0; d < cols; ++d) sum += row[d] - row[d];
  }
  return sum == 0;
}

class BlasPlan final : public Plan {
 public:
  BlasPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        s_(problem),
        tuning_(tuning),
        q_block_(std::min(tuning.get("q_block", 1), std::max<std::int64_t>(s_.q_len, 1))),
        threads_(env.threads),
        pool_(env.pool),
        library_(cblas::open(env.library)),
        score_cols_(s_.most_keys(q_block_)),
        scores_(static_cast<std::size_t>(q_block_ * score_cols_) * sizeof(float)) {}

  void run() override {
    library_->set_num_threads(threads_);
    for (std::int64_t batch = 0; batch < s_.batch; ++batch) {
      const Sizes s = in_.sizes_of(s_, batch);
      for (std::int64_t kv_head = 0; kv_head < s_.kv_heads; ++kv_head) {
        const Matrix k = k_.matrix(batch, kv_head);
        const Matrix v = v_.matrix(batch, kv_head);
        for (std::int64_t g = 0; g < s_.group(); ++g) {
          const std::int64_t head = kv_head * s_.group() + g;
          const Matrix q = q_.matrix(batch, head);
          for (std::int64_t i = 0; i < s_.q_len; i += q_block_) {
            attend(s, q, k, v, i, std::min(q_block_, s_.q_len - i), o_.matrix(batch, head));
          }
        }
      }
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = library_->description;
    facts.tuning = tuning_;
    facts.workspace_bytes = scores_.bytes() + q_.bytes() + k_.bytes() + v_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    const Bound bound(operands, s_);
    if (s_.q_len > 1 && bound.o.row_stride > INT_MAX) {
      throw unavailable_error(fmt::format("output o: BLAS takes row strides up to {}, not {}",
                                          INT_MAX, bound.o.row_stride));
    }
    q_.bind(bound.q, s_.q_len, s_.head_dim);
    k_.bind(bound.k, s_.kv_len, s_.head_dim);
    v_.bind(bound.v, s_.kv_len, s_.v_dim);
    o_ = bound.o;
    in_ = bound;
  }

 private:
  // Queries [first, first+count) of one head; o is that head's output [q_len,head_dim].
  void attend(const Sizes& s, const Matrix& q, const Matrix& k, const Matrix& v, std::int64_t first,
              std::int64_t count, float* o) {
    const auto rows = static_cast<int>(count), head_dim = static_cast<int>(s.head_dim);
    const auto v_dim = static_cast<int>(s.v_dim);
    const auto ld_o = static_cast<int>(s.q_len > 1 ? o_.row_stride : s.v_dim);
    const auto ld_s = static_cast<int>(score_cols_);
    const std::int64_t last = first + count - 1;
    // Keys that some query of the block sees, and those that all do; column 0 of the scores is key
    // `begin`.
    const std::int64_t begin = s.first_key(first), end = s.end_key(last);
    const std::int64_t common_begin = s.first_key(last);
    const std::int64_t common_end = std::max(s.end_key(first), common_begin);
    float* scores = scores_.f32();
    o += first * o_.row_stride;

    // BLAS does not read its operands when alpha is 0; NaN in q or k must spread all the same.
    const auto scale = static_cast<float>(s.scale);
    const float alpha = scale == 0 ? 1 : scale, after = scale == 0 ? 0 : 1;
    if (begin < end) {
      library_->sgemm(cblas::row_major, cblas::no_trans, cblas::trans, rows,
                      static_cast<int>(end - begin), head_dim, alpha, q.data + first * q.ld, q.ld,
                      k.data + begin * k.ld, k.ld, 0, scores, ld_s);
    }
    parallel_for(pool_, threads_, count, [&](std::int64_t i, int) {
      softmax_row(s, first + i, scores + i * score_cols_, begin, end, after);
    });

    // Weights of unseen keys are zero, which hides their v from a query only if v is finite.
    const bool whole =
        all_finite(v, begin, common_begin, s.v_dim) && all_finite(v, common_end, end, s.v_dim);
    const std::int64_t from = whole ? begin : common_begin, to = whole ? end : common_end;
    if (from < to) {
      library_->sgemm(cblas::row_major, cblas::no_trans, cblas::no_trans, rows, v_dim,
                      static_cast<int>(to - from), 1, scores + (from - begin), ld_s,
                      v.data + from * v.ld, v.ld, 0, o, ld_o);
    } else {
      for (std::int64_t i = 0; i < count; ++i) std::fill_n(o + i * ld_o, s.v_dim, 0.0F);
    }
    for (std::int64_t i = 0; i < count && !whole; ++i) {
      const float* w = scores + i * score_cols_;
      for (std::int64_t j = s.first_key(first + i); j < s.end_key(first + i); ++j) {
        if (from <= j && j < to) continue;
        for (std::int64_t d = 0; d < s.v_dim; ++d) {
          o[i * ld_o + d] += w[j - begin] * v.data[j * v.ld + d];
        }
      }
    }
  }

  // Scores of query i and keys [begin,end) become weights that sum to 1, those of keys that it does
  // not see zero.
  void softmax_row(const Sizes& sizes, std::int64_t i, float* s, std::int64_t begin,
                   std::int64_t end, float factor) const {
    const std::int64_t first = sizes.first_key(i) - begin, last = sizes.end_key(i) - begin;
    const auto cap = static_cast<float>(sizes.softcap);
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = first; j < last; ++j) {
      s[j] *= factor;
      if (cap != 0) s[j] = cap * std::tanh(s[j] / cap);
      if (sizes.mask) s[j] += in_.mask.row(i)[begin + j];
      largest = std::max(largest, s[j]);
    }
    float sum = 0;
    for (std::int64_t j = first; j < last; ++j) {
      s[j] = std::exp(s[j] - largest);
      sum += s[j];
    }
    const float inverse = 1 / sum;
    for (std::int64_t j = first; j < last; ++j) s[j] *= inverse;
    std::fill(s, s + first, 0.0F);
    std::fill(s + last, s + (end - begin), 0.0F);
  }

  Sizes s_;
  Tuning tuning_;
  std::int64_t q_block_;
  int threads_;
  Pool* pool_;
  std::shared_ptr<const cblas::Library> library_;
  std::int64_t score_cols_;
  Buffer scores_;  // [q_block,score_cols]
  Source q_, k_, v_;
  Heads o_;
  Inputs in_;
};

// The score buffer should stay in the L2 of the threads that share it; 64 rows still amortise a
// product's start, more than 512 only make causal blocks coarse, and more than a window wastes most
// of a product.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const Sizes s(problem);
  const auto l2 = static_cast<std::int64_t>(machine().l2_bytes) * env.threads;
  const std::int64_t row_bytes = std::max<std::int64_t>(s.kv_len, 1) * sizeof(float);
  const std::int64_t most =
      s.window == 0 || !s.causal ? 512 : std::clamp<std::int64_t>(s.window / 64 * 64, 64, 512);
  const std::int64_t guess = std::clamp<std::int64_t>(l2 / row_bytes / 64 * 64, 64, most);
  std::vector<Tuning> space = {{{"q_block", guess}}};
  for (std::int64_t q_block : {64, 128, 256, 512}) {
    if (q_block != guess) space.push_back({{"q_block", q_block}});
  }
  return space;
}

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  for (const char* name : {"kv_len", "head_dim", "v_dim"}) {
    if (problem.size(name) > INT_MAX) {
      return fmt::format("{}={}: BLAS takes sizes up to {}", name, problem.size(name), INT_MAX);
    }
  }
  return cblas::unsupported_anywhere(problem, env);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  return std::make_unique<BlasPlan>(problem, complete_tuning(blas, problem, env, tuning), env);
}

}  // namespace

const Variant blas = {
    .name = "blas",
    .kernel = &kernel,
    .backend = &cblas::backend,
    .threads = Threads::many,
    .tunables = tunables,
    .unsupported = unsupported,
    .tunings = tunings,
    .plan = plan,
    .dtypes = float32_with_lengths,
};

}  // namespace rooflane::attention
