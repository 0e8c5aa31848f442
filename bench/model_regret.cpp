// Measures how much a variant's cost model loses: for each problem all tunings of its search space
// are timed in the same rounds, and the model's choice, the first, is compared with the fastest
// (bench/model_times.hpp). Planning is timed too: it must not take longer than the run that it
// serves. Used by scripts/model_regret.sh.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/model_times.hpp"
#include "bench/shapes.hpp"
#include "bench/tool_main.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/statistics.hpp"
#include "core/stopwatch.hpp"

namespace rooflane {
namespace {

struct Regret {
  const ProblemTimes* times;
  Choice choice;
  double predicted_ns;  // of the model's choice; 0: nothing predicts
  double planning_ns;   // of the first plan
  double model_ns() const { return times->candidates[choice.index].ns; }
};

// Classes by what bounds a problem; nothing of them is known to a model.
std::string class_of(const Problem& problem) {
  const Cost cost = problem.kernel().cost(problem);
  const double intensity = cost.flops / std::max(cost.bytes, 1.0);
  const char* size = cost.flops < 1e6 ? "tiny" : cost.bytes < 4e6 ? "in cache" : "large";
  return fmt::format("{}, {} flop/byte", size,
                     intensity < 4    ? "< 4"
                     : intensity < 16 ? "4-16"
                                      : "> 16");
}

// Planning for the first time: what was planned is kept.
double time_planning(const Variant& variant, const Problem& problem, const Environment& env) {
  const Stopwatch watch;
  complete_tuning(variant, problem, env, Tuning());
  return 1e9 * watch.seconds();
}

// Predictions in place of times, so that the planned schedule is compared with the best of all
// candidates. Planning leaves out most of them.
ProblemTimes predicted_times(const Variant& variant, const Problem& problem,
                             const Environment& env) {
  ProblemTimes times{&variant, problem, env, {}};
  for (const Tuning& tuning : variant.tunings(problem, env))
    times.candidates.push_back({tuning, 0});
  const std::vector<double> predicted = predictions_of(times);
  for (std::size_t i = 0; i < predicted.size(); ++i) times.candidates[i].ns = predicted[i];
  const Tuning planned = complete_tuning(variant, problem, env, Tuning());
  const auto at = std::find_if(times.candidates.begin(), times.candidates.end(),
                               [&](const Candidate& c) { return c.tuning == planned; });
  if (at == times.candidates.end()) {
    const double ns = 1e9 * variant.predicted_seconds(problem, planned, env);
    times.candidates.insert(times.candidates.begin(), {planned, ns});
  } else {
    std::rotate(times.candidates.begin(), at, at + 1);
  }
  return times;
}

// The regret of the first candidate, which the model chose when the times were taken.
Regret regret_then(const ProblemTimes& times, double planning_ns) {
  const Candidate& first = times.candidates.front();
  const auto predict = times.variant->predicted_seconds;
  return {&times,
          {0, first.ns / times.best_ns()},
          predict != nullptr ? 1e9 * predict(times.problem, first.tuning, times.env) : 0,
          planning_ns};
}

// The regret of the candidate that today's predictions choose.
Regret regret_now(const ProblemTimes& times) {
  const Choice choice = choice_of(times);
  return {&times, choice, predictions_of(times)[choice.index],
          time_planning(*times.variant, times.problem, times.env)};
}

void write_predictions(const std::string& path, const std::optional<MeasuredTraits>& traits,
                       const std::vector<ProblemTimes>& all) {
  TimesFile file(path, traits);
  for (ProblemTimes times : all) {
    const std::vector<double> predicted = predictions_of(times);
    for (std::size_t i = 0; i < predicted.size(); ++i) times.candidates[i].ns = predicted[i];
    file.append(times);
  }
}

void write_line(LineFile& out, const Regret& r) {
  const ProblemTimes& times = *r.times;
  const double best_ns = times.best_ns();
  const auto best = std::find_if(times.candidates.begin(), times.candidates.end(),
                                 [&](const Candidate& c) { return c.ns == best_ns; });
  out.append(fmt::format("\"{}\",{},{},{:.4f},{:.0f},{:.0f},{:.0f},\"{}\",\"{}\"\n",
                         times.problem.text(), times.env.threads, times.candidates.size(),
                         r.choice.ratio, r.model_ns(), best_ns, r.planning_ns,
                         times.candidates[r.choice.index].tuning.text(), best->tuning.text()));
}

// Beside the regret: the prediction over the time, and how many of the problems that run for 10 us
// or more take longer to plan. The first shows whether the machine was as its traits say: half of
// the value of other runs means that something else used the machine, too.
void print_table(const std::vector<Regret>& regrets) {
  std::map<std::string, std::vector<const Regret*>> by_class;
  for (const Regret& regret : regrets) {
    const int threads = regret.times->env.threads;
    by_class[fmt::format("{} thread{}", threads, threads > 1 ? "s" : "")].push_back(&regret);
    by_class[class_of(regret.times->problem)].push_back(&regret);
    by_class["~ all"].push_back(&regret);
  }
  fmt::print(
      "| class | problems | regret: median | 95th percentile | worst | predicted / measured | "
      "planned longer than run |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const auto& [name, members] : by_class) {
    std::vector<double> percents, scales;
    int long_runs = 0, longer_plans = 0;
    for (const Regret* const member : members) {
      percents.push_back(100 * (member->choice.ratio - 1));
      scales.push_back(member->predicted_ns / member->model_ns());
      if (member->model_ns() < 10e3) continue;
      ++long_runs;
      if (member->planning_ns > member->model_ns()) ++longer_plans;
    }
    fmt::print("| {} | {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.2f} | {} of {} |\n", name,
               members.size(), quantile(percents, 0.5), quantile(percents, 0.95),
               quantile(percents, 1), quantile(scales, 0.5), longer_plans, long_runs);
  }
}

std::vector<Problem> problems_of(const std::vector<std::string>& shapes,
                                 const std::vector<std::string>& presets, const Kernel& kernel) {
  const Kernel* const kernels[] = {&kernel};
  std::vector<Problem> problems;
  for (const std::string& shape : shapes) {
    for (Problem& problem : parse_shapes(shape, kernels)) problems.push_back(std::move(problem));
  }
  for (const std::string& preset : presets) {
    for (BenchProblem& p : preset_problems(preset, kernels))
      problems.push_back(std::move(p.problem));
  }
  return problems;
}

int run(int argc, char** argv) {
  CLI::App app("How much a variant's first guess loses against the best of its search space");
  std::string kernel_name = "gemm", variant_name = "hwy", math = "fp32", isa, csv, all_times,
              replay;
  std::vector<std::string> shapes, presets;
  std::vector<int> threads = {1, machine().physical_cores};
  double seconds = 0.5;
  bool only_plans = false;
  app.add_option("-k,--kernel", kernel_name, "kernel");
  app.add_option("-v,--variant", variant_name, "variant");
  app.add_option("--shape", shapes, "problems");
  app.add_option("--preset", presets, "lists of problems, or random:N[:SEED]");
  app.add_option("--threads", threads, "thread counts")->delimiter(',');
  app.add_option("--math", math,
                 "math; where a problem's formats have another one alone, that one");
  app.add_option("--isa", isa, "Highway target");
  app.add_option("--seconds", seconds, "for each problem and thread count");
  app.add_flag("--only-plan", only_plans,
               "no measurement: planning beside the time that the model predicts");
  app.add_option("--csv", csv, "a line for each problem");
  app.add_option("--times", all_times, "a line for each candidate of each problem");
  app.add_option(
      "--replay", replay,
      "a file that --times wrote: the regret of today's predictions among its "
      "candidates, by the traits that the file has; --times then writes the predictions");
  CLI11_PARSE(app, argc, argv);
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  const Catalogue catalogue = Catalogue::built_in();
  std::vector<ProblemTimes> all;
  std::vector<Regret> regrets;
  if (!replay.empty()) {
    RecordedTimes recorded = read_times(replay, catalogue);
    if (only_plans) throw argument_error("--only-plan measures nothing: --replay is in its way");
    if (recorded.traits) use_traits(recorded.traits);
    all = std::move(recorded.problems);
    for (const ProblemTimes& times : all) regrets.push_back(regret_now(times));
    if (!all_times.empty()) write_predictions(all_times, recorded.traits, all);
  } else {
    TimesFile file;
    std::vector<double> planning;
    if (!all_times.empty()) file = TimesFile(all_times, traits_source().measured);
    const Kernel& kernel = catalogue.kernel(kernel_name);
    const Variant& variant = *catalogue.variant(kernel, variant_name).variant;
    if (only_plans && variant.predicted_seconds == nullptr) {
      throw argument_error(
          fmt::format("--only-plan: {} {} predicts nothing", kernel_name, variant_name));
    }
    for (const Problem& problem : problems_of(shapes, presets, kernel)) {
      for (const int count : threads) {
        Environment env;
        env.threads = count;
        env.isa = isa;
        env.math = math_for(problem, math);
        if (refusal(variant, problem, env)) continue;
        planning.push_back(time_planning(variant, problem, env));
        all.push_back(only_plans ? predicted_times(variant, problem, env)
                                 : time_candidates(variant, problem, env,
                                                   variant.tunings(problem, env), 1, seconds));
        file.append(all.back());
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      regrets.push_back(regret_then(all[i], planning[i]));
    }
  }
  if (!csv.empty()) {
    LineFile out(csv, Open::anew);
    out.append("problem,threads,candidates,ratio,model_ns,best_ns,planning_ns,model,best\n");
    for (const Regret& regret : regrets) write_line(out, regret);
  }
  print_table(regrets);
  return 0;
}

}  // namespace
}  // namespace rooflane

int main(int argc, char** argv) {
  return rooflane::tool_main("model-regret", rooflane::run, argc, argv);
}
