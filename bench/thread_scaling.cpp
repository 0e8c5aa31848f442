// Checks whether more threads ever cost time: plans random small problems of row kernels and
// attention for one thread and for all, and times both in the same rounds. Used by
// scripts/thread_scaling.sh.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/random_problems.hpp"
#include "bench/timed_plans.hpp"
#include "bench/tool_main.hpp"
#include "core/catalogue.hpp"
#include "core/machine.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

// With all threads a problem may take so many times as long as with one.
constexpr double most_ratio = 1.10;
// Small, so that regions are a large part of their time: 0.2 to about 200 us of one core.
constexpr double least_bytes = 8 << 10, largest_bytes = 2 << 20, largest_flops = 20e6;

std::vector<Problem> small_problems(const Kernel& kernel, int count, std::uint64_t seed) {
  std::vector<Problem> small;
  for (Problem& problem : random_problems(kernel, {.count = 100 * count, .seed = seed})) {
    const Cost cost = kernel.cost(problem);
    const bool fits = cost.flops > 0 && cost.flops <= largest_flops && cost.bytes >= least_bytes &&
                      cost.bytes <= largest_bytes;
    if (fits && std::ssize(small) < count) small.push_back(std::move(problem));
  }
  return small;
}

struct Scaling {
  std::string problem, tuning;
  double one_ns = 0, all_ns = 0;
  double ratio() const { return all_ns / one_ns; }
};

Scaling scaling_of(const Variant& variant, const Problem& problem, int threads, double budget_s) {
  OwnedOperands operands(problem, 1, machine().physical_cores);
  std::vector<Timed> plans;
  for (const int count : {1, threads}) {
    Environment env;
    env.threads = count;
    Timed timed{make_plan(variant, problem, {}, env, operands.all()), 1, {}};
    timed.plan->bind(operands.all());
    plans.push_back(std::move(timed));
  }
  const std::vector<Timed*> both = {&plans[0], &plans[1]};
  time_in_rounds(both, 15, budget_s);
  // What looks slower is looked at again.
  if (plans[1].median_ns() > most_ratio * plans[0].median_ns()) time_in_rounds(both, 61, budget_s);
  return {problem.text(), plans[1].plan->facts().tuning.text(), plans[0].median_ns(),
          plans[1].median_ns()};
}

int run(int argc, char** argv) {
  CLI::App app("Random small problems with one thread and with all, in the same rounds");
  std::vector<std::string> names = {"softmax", "layernorm", "rmsnorm", "attention"};
  int count = 60, threads = machine().physical_cores;
  std::uint64_t seed = 1;
  double seconds = 0.5;
  app.add_option("-k,--kernel", names, "kernels")->delimiter(',');
  app.add_option("--random", count, "problems of all kernels together");
  app.add_option("--seed", seed, "of the problems");
  app.add_option("--threads", threads, "all of them");
  app.add_option("--seconds", seconds, "for each problem, at most");
  CLI11_PARSE(app, argc, argv);
  const Catalogue catalogue = Catalogue::built_in();
  double logs = 0, worst = 0;
  int problems = 0, slower = 0;
  fmt::print("| problem | 1 thread, us | {} threads, us | ratio | tuning | verdict |\n", threads);
  fmt::print("|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Kernel& kernel = catalogue.kernel(names[i]);
    const Variant& variant = *catalogue.variant(kernel, "hwy").variant;
    const auto share = static_cast<int>((i + 1) * static_cast<std::size_t>(count) / names.size() -
                                        i * static_cast<std::size_t>(count) / names.size());
    for (const Problem& problem : small_problems(kernel, share, seed)) {
      const Scaling s = scaling_of(variant, problem, threads, seconds);
      const bool failed = s.ratio() > most_ratio;
      fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {} | {} |\n", s.problem, s.one_ns * 1e-3,
                 s.all_ns * 1e-3, s.ratio(), s.tuning, failed ? "SLOWER" : "ok");
      std::fflush(stdout);
      logs += std::log(s.ratio());
      worst = std::max(worst, s.ratio());
      slower += failed ? 1 : 0;
      ++problems;
    }
  }
  fmt::print("\n{} problems, {} threads over one: geometric mean {:.2f}, worst {:.2f}, {} slower\n",
             problems, threads, std::exp(logs / std::max(problems, 1)), worst, slower);
  return slower > 0 ? 1 : 0;
}

}  // namespace
}  // namespace rooflane

int main(int argc, char** argv) {
  return rooflane::tool_main("thread-scaling", rooflane::run, argc, argv);
}
