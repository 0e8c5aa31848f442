// Measures how much a variant's cost model loses: for each problem all tunings of its search space
<<<<<<< HEAD
// are timed in the same rounds, and the model's choice, the first, is compared with the fastest. A
// second pass times the fastest and the model's choice again, so that luck in the first pass does
// not count as regret. Planning is timed, too: it must not take longer than the run that it serves.
// Used by scripts/model_regret.sh.
=======
// are timed in the same rounds, and the model's choice, the first, is compared with the fastest
// (bench/model_times.hpp). Used by scripts/model_regret.sh.
>>>>>>> h6-seen
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
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/statistics.hpp"

namespace rooflane {
namespace {

struct Regret {
<<<<<<< HEAD
  std::string problem, problem_class;
  int threads = 1;
  std::size_t candidates = 0;
  double ratio = 1;  // the model's choice over the fastest
  double model_ns = 0, best_ns = 0;
  double predicted_ns = 0;  // of the model's choice; 0: nothing predicts
  double planning_ns = 0;
  std::string model, best;
=======
  const ProblemTimes* times;
  Choice choice;
  double predicted_ns;  // of the model's choice; 0: nothing predicts
  double model_ns() const { return times->candidates[choice.index].ns; }
>>>>>>> h6-seen
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

// Of the first candidate, which the model chose when the times were taken.
Regret regret_then(const ProblemTimes& times) {
  const Candidate& first = times.candidates.front();
  const auto predict = times.variant->predicted_seconds;
  return {&times,
          {0, first.ns / times.best_ns()},
          predict != nullptr ? 1e9 * predict(times.problem, first.tuning, times.env) : 0};
}

<<<<<<< HEAD
// Nanoseconds that planning a problem takes for the first time; what was planned is kept.
double planning_ns(const Variant& variant, const Problem& problem, const Environment& env) {
  const Stopwatch watch;
  complete_tuning(variant, problem, env, Tuning());
  return 1e9 * watch.seconds();
}

double predicted_ns(const Variant& variant, const Problem& problem, const std::string& tuning,
                    const Environment& env) {
  if (variant.predicted_seconds == nullptr) return 0;
  return 1e9 * variant.predicted_seconds(problem, parse_tuning(variant, tuning), env);
}

Regret regret_of(const Variant& variant, const Problem& problem, const Environment& env,
                 double budget_s, std::FILE* times) {
  OwnedOperands operands(problem, 1, machine().physical_cores);
  std::vector<Timed> all;
  for (const Tuning& tuning : variant.tunings(problem, env)) {
    Timed timed{tuning.text(), variant.plan(problem, tuning, env, operands.all()), 1, {}};
    timed.plan->bind(operands.all());
    all.push_back(std::move(timed));
  }
  std::vector<Timed*> first;
  for (Timed& timed : all) first.push_back(&timed);
  time_in_rounds(first, 9, budget_s);
  Timed* const best = *std::min_element(
      first.begin(), first.end(), [](auto* x, auto* y) { return x->median_ns() < y->median_ns(); });
  Timed* const model = &all.front();
  for (Timed& timed : all) {
    write_time(times, problem.text(), env.threads, timed.median_ns(), timed.tuning);
  }
  if (times != nullptr) std::fflush(times);  // a run may be cut off
  Regret r{.problem = problem.text(),
           .problem_class = class_of(problem),
           .threads = env.threads,
           .candidates = all.size(),
           .model = model->tuning,
           .best = best->tuning};
  if (best != model) {
    time_in_rounds({model, best}, 31, budget_s / 2);
    r.ratio = std::max(1.0, model->median_ns() / best->median_ns());
  }
  r.model_ns = model->median_ns();
  r.predicted_ns = predicted_ns(variant, problem, model->tuning, env);
  r.planning_ns = planning_ns(variant, problem, env);
  r.best_ns = best->median_ns();
  return r;
}

// Planning beside the time that is predicted, which counts as that of the run, and the choice
// beside the first of all candidates, most of which planning leaves out.
Regret plan_of(const Variant& variant, const Problem& problem, const Environment& env) {
  const double first_ns = planning_ns(variant, problem, env);
  const std::string tuning = complete_tuning(variant, problem, env, Tuning()).text();
  const std::vector<Tuning> all = variant.tunings(problem, env);
  const double ns = predicted_ns(variant, problem, tuning, env);
  const double least_ns = predicted_ns(variant, problem, all.front().text(), env);
  return {.problem = problem.text(),
          .problem_class = class_of(problem),
          .threads = env.threads,
          .candidates = all.size(),
          .ratio = ns / least_ns,
          .model_ns = ns,
          .best_ns = least_ns,
          .predicted_ns = ns,
          .planning_ns = first_ns,
          .model = tuning,
          .best = all.front().text()};
}

// The fields of a line of --times; the first and the last are quoted.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
=======
// Of the candidate that today's predictions choose.
Regret regret_now(const ProblemTimes& times) {
  const Choice choice = choice_of(times);
  return {&times, choice, predictions_of(times)[choice.index]};
}

void write_predictions(const std::string& path, const std::optional<MeasuredTraits>& traits,
                       const std::vector<ProblemTimes>& all) {
  TimesFile file(path, traits);
  for (ProblemTimes times : all) {
    const std::vector<double> predicted = predictions_of(times);
    for (std::size_t i = 0; i < predicted.size(); ++i) times.candidates[i].ns = predicted[i];
    file.append(times);
>>>>>>> h6-seen
  }
}

<<<<<<< HEAD
// The regret of today's predictions among candidates that were timed before: no measurement. The
// traits must be those of the machine of the times. `predictions` gets them in place of the times.
std::vector<Regret> regrets_of_times(const Variant& variant, const Kernel& kernel,
                                     const std::string& file, const std::string& math,
                                     std::FILE* predictions) {
  std::ifstream in(file);
  if (!in) throw argument_error(fmt::format("{}: cannot be read", file));
  const Kernel* const kernels[] = {&kernel};
  std::vector<Regret> regrets;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  std::vector<double> least_predicted;
  std::string line;
  std::getline(in, line);  // the head
  while (std::getline(in, line)) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() != 4) continue;
    const Problem problem = parse_problem(fields[0], kernels);
    Environment env;
    env.threads = std::stoi(fields[1]);
    env.math = math_for(problem, math);
    const double ns = std::stod(fields[2]);
    const double predicted = predicted_ns(variant, problem, fields[3], env);
    write_time(predictions, fields[0], env.threads, predicted, fields[3]);
    const auto [at, is_new] = places.try_emplace({fields[0], fields[1]}, regrets.size());
    if (is_new) {
      regrets.push_back({.problem = fields[0],
                         .problem_class = class_of(problem),
                         .threads = env.threads,
                         .best_ns = ns,
                         .planning_ns = planning_ns(variant, problem, env),
                         .model = "",
                         .best = ""});
      least_predicted.push_back(std::numeric_limits<double>::infinity());
    }
    Regret& regret = regrets[at->second];
    ++regret.candidates;
    if (ns <= regret.best_ns) regret.best_ns = ns, regret.best = fields[3];
    if (predicted < least_predicted[at->second]) {
      least_predicted[at->second] = predicted;
      regret.model_ns = ns, regret.model = fields[3];
      regret.predicted_ns = predicted;
    }
  }
  for (Regret& regret : regrets) regret.ratio = regret.model_ns / regret.best_ns;
  return regrets;
}

void write_line(std::FILE* out, const Regret& r) {
  if (out == nullptr) return;
  fmt::print(out, "\"{}\",{},{},{:.4f},{:.0f},{:.0f},{:.0f},\"{}\",\"{}\"\n", r.problem, r.threads,
             r.candidates, r.ratio, r.model_ns, r.best_ns, r.planning_ns, r.model, r.best);
  std::fflush(out);
=======
void write_line(LineFile& out, const Regret& r) {
  const ProblemTimes& times = *r.times;
  const double best_ns = times.best_ns();
  const auto best = std::find_if(times.candidates.begin(), times.candidates.end(),
                                 [&](const Candidate& c) { return c.ns == best_ns; });
  out.append(fmt::format("\"{}\",{},{},{:.4f},{:.0f},{:.0f},\"{}\",\"{}\"\n", times.problem.text(),
                         times.env.threads, times.candidates.size(), r.choice.ratio, r.model_ns(),
                         best_ns, times.candidates[r.choice.index].tuning.text(),
                         best->tuning.text()));
>>>>>>> h6-seen
}

// Beside the regret: the prediction over the time, which says whether the machine was as its traits
// have it (half of what other runs of the machine show means that others used it, too), and how
// many of the problems that run for 10 us or more take longer to plan.
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
<<<<<<< HEAD
      percents.push_back(100 * (member->ratio - 1));
      scales.push_back(member->predicted_ns / member->model_ns);
      if (member->model_ns < 10e3) continue;
      ++long_runs;
      if (member->planning_ns > member->model_ns) ++longer_plans;
=======
      percents.push_back(100 * (member->choice.ratio - 1));
      scales.push_back(member->predicted_ns / member->model_ns());
>>>>>>> h6-seen
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
<<<<<<< HEAD
  const File out(csv, "problem,threads,candidates,ratio,model_ns,best_ns,planning_ns,model,best\n");
  const File times(all_times, "problem,threads,ns,tuning\n");
  if (!replay.empty()) {
    const std::vector<Regret> regrets =
        regrets_of_times(variant, *kernel, replay, math, times.get());
    for (const Regret& r : regrets) write_line(out.get(), r);
    print_table(regrets);
    return 0;
  }
  std::vector<Regret> regrets;
  for (const Problem& problem : problems) {
    for (const int count : threads) {
      Environment env;
      env.threads = count;
      env.isa = isa;
      env.math = math_for(problem, math);
      if (refusal(variant, problem, env)) continue;
      Regret r = only_plans ? plan_of(variant, problem, env)
                            : regret_of(variant, problem, env, seconds, times.get());
      write_line(out.get(), r);
      regrets.push_back(std::move(r));
=======
  const Catalogue catalogue = Catalogue::built_in();
  std::vector<ProblemTimes> all;
  std::vector<Regret> regrets;
  if (!replay.empty()) {
    RecordedTimes recorded = read_times(replay, catalogue);
    if (recorded.traits) use_traits(recorded.traits);
    all = std::move(recorded.problems);
    for (const ProblemTimes& times : all) regrets.push_back(regret_now(times));
    if (!all_times.empty()) write_predictions(all_times, recorded.traits, all);
  } else {
    TimesFile file;
    if (!all_times.empty()) file = TimesFile(all_times, traits_source().measured);
    const Kernel& kernel = catalogue.kernel(kernel_name);
    const Variant& variant = *catalogue.variant(kernel, variant_name).variant;
    for (const Problem& problem : problems_of(shapes, presets, kernel)) {
      for (const int count : threads) {
        Environment env;
        env.threads = count;
        env.isa = isa;
        env.math = math_for(problem, math);
        if (refusal(variant, problem, env)) continue;
        const std::vector<Tuning> tunings = variant.tunings(problem, env);
        all.push_back(time_candidates(variant, problem, env, tunings, 1, seconds));
        file.append(all.back());
      }
>>>>>>> h6-seen
    }
    for (const ProblemTimes& times : all) regrets.push_back(regret_then(times));
  }
  if (!csv.empty()) {
    LineFile out(csv, Open::anew);
    out.append("problem,threads,candidates,ratio,model_ns,best_ns,model,best\n");
    for (const Regret& regret : regrets) write_line(out, regret);
  }
  print_table(regrets);
  return 0;
}

}  // namespace
}  // namespace rooflane

int main(int argc, char** argv) {
  try {
    return rooflane::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "model-regret: {}\n", error.what());
    return 2;
  }
}
