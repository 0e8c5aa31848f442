// `rooflane bench`: verifies, times, writes rows. Measuring stands in bench/; this is arguments in,
// rows out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include "bench/google_benchmark.hpp"
#include "bench/run_files.hpp"
#include "cli/build_facts.hpp"
#include "cli/ladder.hpp"
#include "cli/options.hpp"
#include "cli/slowdowns.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "cli/workers.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/compare_text.hpp"
#include "io/crossover.hpp"
#include "io/csv.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "io/size_classes.hpp"
#include "io/summary_text.hpp"
#include "measure/ceilings_json.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

// `bench` without a selection of its own ends within 3 minutes, ceilings and start included.
constexpr double default_budget_seconds = 140;

class StandardOutputSink : public RowSink {
 public:
  explicit StandardOutputSink(ProgressLine& progress) : progress_(progress) {}
  void on_row(const Row& row) override {
    progress_.wipe();
    if (!std::exchange(header_written_, true)) std::cout << csv_header();
    std::cout << csv_line(row) << std::flush;
  }

 private:
  ProgressLine& progress_;
  bool header_written_ = false;
};

// Keeps rows with their samples for the summary of this run.
class MemorySink : public RowSink {
 public:
  explicit MemorySink(const Earlier* earlier) {
    if (earlier == nullptr) return;
    for (const Row& row : earlier->rows) rows_.push_back({row, {}});
    samples_ = earlier->samples;
  }
  void on_sample(const Sample& sample) override { samples_.push_back(sample); }
  void on_row(const Row& row) override { rows_.push_back({row, {}}); }
  std::vector<MeasuredRow> take() {
    for (const Sample& sample : samples_) {
      const auto position = static_cast<std::size_t>(sample.row);
      if (position < rows_.size()) rows_[position].samples.push_back(sample);
    }
    return std::move(rows_);
  }

 private:
  std::vector<MeasuredRow> rows_;
  std::vector<Sample> samples_;
};

std::string progress_text(const Progress& progress) {
  std::string left;
  if (progress.seconds_left >= 0) {
    const auto seconds = static_cast<long>(std::lround(progress.seconds_left));
    left = fmt::format(" {}:{:02} left", seconds / 60, seconds % 60);
  }
  return fmt::format("[{:3.0f} %{}] {}", 100 * progress.done, left, progress.doing);
}

// The context of the JSON: arguments, environment of each worker, what disturbs the machine,
// ceilings.
nlohmann::ordered_json context_of(const Arguments& arguments, const BenchOptions& options,
                                  const BenchResult& result,
                                  const std::vector<Slowdown>& slowdowns) {
  auto disturbing = nlohmann::ordered_json::array();
  for (const Slowdown& slowdown : slowdowns) {
    disturbing.push_back({{"what", slowdown.what}, {"mend", slowdown.mend}});
  }
  auto workers = nlohmann::ordered_json::array();
  for (const WorkerContext& worker : result.workers) {
    auto environment = nlohmann::ordered_json::object();
    for (const auto& [name, value] : worker.environment) environment[name] = value;
    workers.push_back({{"variant", worker.variant},
                       {"threads", worker.threads},
                       {"command", worker.command},
                       {"environment", environment}});
  }
  return {{"run_id", result.run_id},
          {"version", build_version},
          {"build_commit", build_commit},
          {"compiler", build_compiler},
          {"arguments", arguments.words()},
          {"seed", options.seed},
          {"launches", options.launches},
          {"interval_pct", options.interval_pct},
          {"max_time", options.max_time},
          {"machine", machine_json(machine())},
          {"workers", workers},
          {"slowdowns", disturbing},
          {"ceilings", nlohmann::ordered_json(nlohmann::json(result.ceilings))}};
}

std::string read_choice(const Arguments& arguments, const std::string& option,
                        const std::vector<std::string>& allowed) {
  std::string value = arguments.value(option).value_or(allowed.front());
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    throw argument_error(option + ": " + unknown_name("value", value, allowed));
  }
  return value;
}

// Whether two paths name one file, which need not exist. Devices may be named twice.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (a.empty() || b.empty() || a.starts_with("/dev/")) return false;
  return std::filesystem::weakly_canonical(a, ignored) ==
         std::filesystem::weakly_canonical(b, ignored);
}

// Checks that an output can be written; nothing is written yet.
std::string read_output(const Arguments& arguments, const std::string& option, bool with_samples) {
  std::string path = arguments.value(option).value_or("");
  if (path.empty()) return path;
  try {
    require_writable(path);
    if (with_samples) require_writable(samples_path(path));
  } catch (const Error& error) {
    throw Error(error.kind(), option + ": " + error.what());
  }
  return path;
}

void declare(Arguments& arguments) {
  declare_problems(arguments);
  arguments.repeatable("--preset", "NAME|FILE", "a list of shapes; default: default");
  declare_common(arguments, Many::yes);
  declare_workers(arguments);
  arguments.option("--cache", "warm|cold", "warm: operands stay in the caches; cold: evicted");
  arguments.option("--timer", "steady|event", "host clock, or the device's own");
  arguments.option("--min-time", "SECONDS", "timed work per row, at least");
  arguments.option("--launches", "N",
                   "times everything is measured, in fresh processes; default 3");
  arguments.option("--interval", "PERCENT",
                   "sampling ends when medians are known to ± this; default 2");
  arguments.option("--max-time", "SECONDS",
                   "or after so long for the rounds of a group in one launch; default 2");
  arguments.option("--ceilings-time", "SECONDS",
                   "for the machine's limits, measured first, at most; default 15");
  arguments.flag("--resume", "go on with the interrupted run of --csv; repeats no sample");
  arguments.option("--csv", "FILE", "rows to FILE, samples to FILE.samples.csv; summary printed");
  arguments.option("--json", "FILE", "rows with the context of the run");
  arguments.flag("--all", "the summary shows rows that lose by far too");
  arguments.flag("--ladder",
                 "measure every rung of the variants' ladders, from the plainest loops up, and "
                 "print what each bought; default preset: ladder");
  arguments.flag("--fail-on-regression",
                 "exit status 1 when a row is SLOWER than that of --against, or fails");
  arguments.flag("--dry-run", "print the cases and measure nothing");
  arguments.pass_through("--benchmark_");
  arguments.examples(
      {"rooflane bench --shape softmax:rows=64,cols=512 --min-time 0.001 --csv rows.csv",
       "rooflane bench -k gemm -v scalar,hwy --shape gemm:m=n=k=64..128*2 --threads 1 --min-time "
       "0.001 --ceilings-time 1",
       "rooflane bench --ladder -v hwy --shape gemm:m=n=k=128 --threads 1 --launches 1 "
       "--ceilings-time 1",
       "rooflane bench --dry-run"});
}

int run(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  Complaints complaints;
  CommonOptions common = read_common(arguments, catalogue, Many::yes, complaints);
  const bool ladder = arguments.has("--ladder");
  const std::vector<BenchProblem> problems =
      read_problems(arguments, catalogue, ladder ? "ladder" : "default", complaints);
  if (ladder && common.variants.empty()) {
    common.variants = complaints.check(
        [&] { return variants_with_ladder(catalogue, kernels_of(problems, catalogue)); });
  }
  const std::vector<std::string> guests =
      add_workers(arguments, common, settings, catalogue, complaints);
  const std::vector<Target> targets = select_targets(catalogue, kernels_of(problems, catalogue),
                                                     common.variants, complaints, guests);
  complaints.check([&] {
    check_tunings(common.tunings, targets);
    return true;
  });
  const std::string cache = complaints.check(
      [&] {
        return read_choice(arguments, "--cache", {"warm", "cold"});
      },
      "warm");
  const std::string timer = complaints.check(
      [&] {
        return read_choice(arguments, "--timer", {"steady", "event"});
      },
      "steady");
  const std::optional<double> min_time = complaints.check([&]() -> std::optional<double> {
    const auto text = arguments.value("--min-time");
    return text ? std::optional(parse_seconds("--min-time", *text)) : std::nullopt;
  });
  const int launches = complaints.check([&] {
    const auto text = arguments.value("--launches");
    constexpr int most_launches = 1000;
    return text ? static_cast<int>(parse_count("--launches", *text, 1, most_launches))
                : BenchOptions().launches;
  });
  const double interval = complaints.check([&] {
    const auto text = arguments.value("--interval");
    const auto value = text ? parse_real(*text) : BenchOptions().interval_pct;
    if (!value || !(*value > 0 && *value <= 100)) {
      throw argument_error(fmt::format(
          "--interval '{}': allowed is a number of per cent above 0, at most 100", *text));
    }
    return *value;
  });
  const double max_time = complaints.check([&] {
    const auto text = arguments.value("--max-time");
    return text ? parse_seconds("--max-time", *text) : BenchOptions().max_time;
  });
  const double ceilings_time = complaints.check([&] {
    const auto text = arguments.value("--ceilings-time");
    return text ? parse_seconds("--ceilings-time", *text) : BenchOptions().ceilings_seconds;
  });
  const std::string csv = complaints.check([&] { return read_output(arguments, "--csv", true); });
  const std::string json =
      complaints.check([&] { return read_output(arguments, "--json", false); });
  complaints.check([&] {
    for (const std::string& other : {csv, csv.empty() ? csv : samples_path(csv)}) {
      if (!json.empty() && same_file(json, other)) {
        throw argument_error(fmt::format("--json '{}' is the file of --csv", json));
      }
    }
    return true;
  });
  const GoogleBenchmarkFlags google =
      complaints.check([&] { return parse_google_benchmark_flags(arguments.passed()); });
  for (const BenchProblem& problem : problems) {
    complaints.check([&] {
      require_memory(problem.problem, 1);
      return true;
    });
  }
  complaints.check([&] {
    if (arguments.has("--resume") && csv.empty()) {
      throw argument_error("--resume needs --csv FILE: the file of the interrupted run");
    }
    return true;
  });
  complaints.raise();

  BenchOptions options = bench_options(common, problems, targets, catalogue, settings);
  options.ladder = ladder;
  options.cache = cache == "cold" ? CacheMode::cold : CacheMode::warm;
  options.timer = timer == "event" ? Timer::event : Timer::steady;
  if (min_time) options.min_time = *min_time;
  options.launches = launches;
  options.interval_pct = interval;
  options.max_time = max_time;
  options.ceilings_seconds = ceilings_time;
  const bool selected = arguments.has("--kernel") || arguments.has("--shape") ||
                        arguments.has("--preset") || min_time.has_value();
  if (!selected) options.budget_seconds = default_budget_seconds;
  options.google_benchmark_flags = arguments.passed();
  // A script that named its files after the run says so; else the run names itself.
  if (const char* run_id = std::getenv("ROOFLANE_RUN_ID")) options.stamp.run_id = run_id;
  options.stamp.build_commit = build_commit;
  options.stamp.git_dirty = build_dirty;
  options.stamp.compiler = build_compiler;

  const std::vector<PlannedCase> planned = plan_bench(options);  // refuses what is wrong
  check_planned_tunings(planned, catalogue);
  if (arguments.has("--dry-run")) {
    for (const PlannedCase& planned_case : planned) {
      std::cout << planned_case.measured.text() << "\n";
    }
    return 0;
  }

  std::optional<Interrupted> interrupted;
  if (arguments.has("--resume")) interrupted = read_interrupted(csv, options);
  MemorySink memory(interrupted ? &interrupted->earlier : nullptr);
  std::vector<Row> rows;
  if (interrupted && interrupted->complete) {
    print_note(fmt::format("the run of '{}' is complete: nothing is left to do", csv));
    rows = interrupted->earlier.rows;
  } else {
    if (interrupted) {
      options.stamp.run_id = interrupted->run_id;
      options.ceilings = &interrupted->ceilings;
      options.earlier = &interrupted->earlier;
    }
    std::vector<Slowdown> slowdowns;
    if (!google.list) slowdowns = slowdowns_here(catalogue);
    for (const Slowdown& slowdown : slowdowns) {
      print_note(fmt::format("{}; mend: {}", slowdown.what, slowdown.mend));
    }
    ProgressLine progress;
    options.progress = [&](const Progress& p) { progress.show(progress_text(p)); };
    std::vector<RowSink*> sinks = {&memory};
    std::optional<RunFiles> files;
    std::optional<StandardOutputSink> standard_output;
    if (!csv.empty() && !google.list) {
      sinks.push_back(&files.emplace(csv, options, interrupted ? &*interrupted : nullptr));
    } else if (!google.prints() && !ladder) {
      sinks.push_back(&standard_output.emplace(progress));
    }
    const BenchResult result = run_bench(options, sinks);
    progress.wipe();
    if (!json.empty()) {
      write_json(json,
                 document_json(result.rows, context_of(arguments, options, result, slowdowns)));
    }
    if (files) files->finish();
    rows = result.rows;
  }
  const bool with_file = !csv.empty() && !google.list;
  const std::vector<MeasuredRow> measured = memory.take();
  bool regressed = false;
  const std::vector<SummaryGroup> groups = summarise_rows(measured);
  if (with_file && !google.prints() && !ladder) {
    std::cout << terminal_summary(groups, arguments.has("--all") ? Shown::all : Shown::close)
              << crossover_text(measured, "");
  }
  if (!google.list && !google.prints() && (with_file || ladder)) {
    std::cout << terminal_ladders(ladders_of(measured), rung_texts(catalogue));
  }
  for (const std::string& build : other_builds(measured)) {
    const Comparison comparison = compare_against(measured, build);
    regressed = regressed || comparison.regressed();
    if (!with_file || google.prints()) continue;
    const std::string header = "old: V@" + build + ", new: V, in the same rounds";
    std::cout << "\n" << terminal_comparison(comparison, {&header, 1});
  }
  if (with_file && !google.prints() && !ladder) {
    std::cout << "\n" << terminal_classes(size_classes(groups));
  }
  StatusesByVariant seen;
  for (const Row& row : rows) {
    if (const auto status = parse_status(row.status)) seen[row.variant].insert(*status);
  }
  const int status =
      exit_status_of(seen, google.list ? std::vector<std::string>() : common.variants);
  return status == 0 && regressed && arguments.has("--fail-on-regression") ? 1 : status;
}

}  // namespace

const Verb bench_verb = {"bench", "verifies, times, writes rows", declare, run};

}  // namespace rooflane
