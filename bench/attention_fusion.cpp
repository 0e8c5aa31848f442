// Checks that attention is never slower than what it fuses: two matrix products and a softmax, each
// the lab's own at its best schedule, with the scores in memory. Times both in the same rounds,
// prefill and decode. Used by scripts/attention_fusion.sh.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/timed_plans.hpp"
#include "bench/tool_main.hpp"
#include "core/buffer.hpp"
#include "core/catalogue.hpp"
#include "core/machine.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

// Times that differ by less are equal.
constexpr double most_ratio = 1.02;
constexpr std::uint64_t seed = 1;

std::unique_ptr<Plan> plan_of(const Catalogue& catalogue, const std::string& text,
                              const Environment& env) {
  const Problem problem = parse_problem(text, catalogue.kernels());
  return make_plan(*catalogue.variant(problem.kernel(), "hwy").variant, problem, {}, env, {});
}

// Some heads of q, k, v or o as a batch of matrices.
View heads_of(const View& view, std::int64_t first, std::int64_t count) {
  View part = view;
  part.rank = 3;
  part.data = static_cast<std::byte*>(view.data) + view.dtype->bytes(first * view.strides[1]);
  part.shape = {count, view.shape[2], view.shape[3]};
  part.strides = {view.strides[1], view.strides[2], view.strides[3]};
  return part;
}

// Attention of one batch without masking, in three passes over the scores of some heads at a time.
class SeparatePlan final : public Plan {
 public:
  SeparatePlan(const Problem& problem, std::int64_t together, const Environment& env,
               const Catalogue& catalogue)
      : Plan(problem), heads_(problem.size("heads")), together_(together) {
    const std::int64_t rows = problem.size("q_len"), cols = problem.size("kv_len");
    const std::int64_t width = problem.size("head_dim");
    const std::string type = problem.choice("kv_type");
    scores_of_ = plan_of(catalogue,
                         fmt::format("gemm:m={},n={},k={},batch={},trans_b=1,alpha={},b_type={}",
                                     rows, cols, width, together, problem.value("scale"), type),
                         env);
    softmax_ =
        plan_of(catalogue, fmt::format("softmax:rows={},cols={}", together * rows, cols), env);
    values_of_ = plan_of(
        catalogue,
        fmt::format("gemm:m={},n={},k={},batch={},b_type={}", rows, width, cols, together, type),
        env);
    buffer_ = Buffer(static_cast<std::size_t>(together * rows * cols) * sizeof(float));
    scores_ = contiguous_view(buffer_.data(), Shape{together, rows, cols});
    const View flat = contiguous_view(buffer_.data(), Shape{together * rows, cols});
    softmax_->bind(operands({{"x", flat}, {"y", flat}}));
  }

  void run() override {
    for (std::int64_t head = 0; head < heads_; head += together_) {
      const auto part = [&](const char* name) {
        return heads_of(bound_.at(name), head, together_);
      };
      scores_of_->bind(operands({{"a", part("q")}, {"b", part("k")}, {"c", scores_}}));
      scores_of_->run();
      softmax_->run();
      values_of_->bind(operands({{"a", scores_}, {"b", part("v")}, {"c", part("o")}}));
      values_of_->run();
    }
  }
  PlanFacts facts() const override { return {}; }

 private:
  static Operands operands(std::initializer_list<std::pair<const char*, View>> views) {
    Operands named;
    for (const auto& [name, view] : views) named.set(name, view);
    return named;
  }
  void on_bind(const Operands& /*operands*/) override {}

  std::int64_t heads_, together_;
  std::unique_ptr<Plan> scores_of_, softmax_, values_of_;
  Buffer buffer_;
  View scores_;
};

struct Compared {
  double fused_ns = 0, separate_ns = 0;
  bool right = true;  // what the separate passes computed
  double ratio() const { return fused_ns / separate_ns; }
  const char* verdict() const { return !right ? "WRONG" : ratio() > most_ratio ? "SLOWER" : "ok"; }
};

Compared compared(const Catalogue& catalogue, const Problem& problem, const Environment& env,
                  double budget_s) {
  OwnedOperands operands(problem, seed, machine().physical_cores);
  const Reference reference = compute_reference(problem, operands.inputs(), seed);
  std::vector<Timed> plans(1);
  plans[0].plan = make_plan(*catalogue.variant(problem.kernel(), "hwy").variant, problem, {}, env,
                            operands.all());
  // Scores of one head stay in cache longest, those of all heads have the longest loops.
  for (const std::int64_t together : {std::int64_t{1}, problem.size("heads")}) {
    plans.emplace_back().plan = std::make_unique<SeparatePlan>(problem, together, env, catalogue);
  }
  Compared result;
  std::vector<Timed*> all;
  for (Timed& timed : plans) {
    timed.plan->bind(operands.all());
    operands.poison_output();
    timed.plan->run();
    result.right &= verify_output(problem, operands.all(), reference, seed).usable();
    all.push_back(&timed);
  }
  time_in_rounds(all, 15, budget_s);
  result.fused_ns = plans[0].median_ns();
  result.separate_ns = std::min(plans[1].median_ns(), plans[2].median_ns());
  return result;
}

int run(int argc, char** argv) {
  CLI::App app("Attention against two products and a softmax, in the same rounds");
  std::vector<int> tokens = {512, 1024, 2048, 4096, 8192};
  int heads = 2, head_dim = 64;
  Environment env;
  env.threads = machine().physical_cores;
  double seconds = 1;
  app.add_option("--tokens", tokens, "lengths")->delimiter(',');
  app.add_option("--heads", heads, "heads");
  app.add_option("--head-dim", head_dim, "elements of a head");
  app.add_option("--threads", env.threads, "threads");
  app.add_option("--seconds", seconds, "for each problem, at most");
  CLI11_PARSE(app, argc, argv);
  const Catalogue catalogue = Catalogue::built_in();
  int worse = 0;
  fmt::print("| problem | fused, us | separate, us | ratio | verdict |\n|---|---|---|---|---|\n");
  for (const char* type : {"f32", "f16"}) {
    for (const int length : tokens) {
      for (const int queries : {length, 1}) {
        const std::string text =
            fmt::format("attention:batch=1,heads={},q_len={},kv_len={},head_dim={},kv_type={}",
                        heads, queries, length, head_dim, type);
        const Problem problem = parse_problem(text, catalogue.kernels());
        const Compared result = compared(catalogue, problem, env, seconds);
        worse += result.verdict() == std::string("ok") ? 0 : 1;
        fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {} |\n", problem.text(),
                   result.fused_ns * 1e-3, result.separate_ns * 1e-3, result.ratio(),
                   result.verdict());
        std::fflush(stdout);
      }
    }
  }
  fmt::print("\n{} thread{}: fused attention is {}\n", env.threads, env.threads == 1 ? "" : "s",
             worse == 0 ? "never slower" : fmt::format("slower or wrong in {} problems", worse));
  return worse > 0 ? 1 : 0;
}

}  // namespace
}  // namespace rooflane

int main(int argc, char** argv) {
  return rooflane::tool_main("attention-fusion", rooflane::run, argc, argv);
}
