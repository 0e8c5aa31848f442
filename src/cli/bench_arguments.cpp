// Reading the arguments of `bench`. See bench_arguments.hpp.
#include "cli/bench_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/build_facts.hpp"
#include "cli/fusion.hpp"
#include "cli/ladder.hpp"
#include "cli/workers.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/csv.hpp"
#include "io/files.hpp"
#include "io/phases_file.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

constexpr const char* sizes_example =
    "rooflane bench -k gemm -v scalar,hwy --shape gemm:m=n=k=64..128*2 --threads 1 --min-time "
    "0.001 --ceilings-time 1";
constexpr const char* ladder_example =
    "rooflane bench --ladder -v hwy --shape gemm:m=n=k=128 --threads 1 --launches 1 "
    "--ceilings-time 1";
constexpr const char* fusion_example =
    "rooflane bench --fusion --shape gemm:m=64,n=256,k=64,epilogue=bias+gelu --threads 1 "
    "--launches 1 --ceilings-time 1";

constexpr const char* tracking_example =
    "rooflane bench -v hwy --shape softmax:rows=64,cols=512 --threads 1 --ceilings-time 1 --format "
    "bmf";

// `bench` without a selection of its own ends within four minutes, ceilings and what one repetition
// more may take included; after one minute it prints the first of them.
constexpr double default_budget_seconds = 205;
constexpr std::size_t default_first_problems = 4;
// The events of each thread in the trace of a row: a hundred runs that pack, compute and wait in 40
// phases. Perfetto still shows that many at a glance.
constexpr std::int64_t traced_events = 4096;

std::string read_choice(const Arguments& arguments, const std::string& option,
                        const std::vector<std::string>& allowed) {
  std::string value = arguments.value(option).value_or(allowed.front());
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    throw argument_error(option + ": " + unknown_name("value", value, allowed));
  }
  return value;
}

double read_seconds(const Arguments& arguments, const std::string& option, double otherwise) {
  const auto text = arguments.value(option);
  return text ? parse_seconds(option, *text) : otherwise;
}

int read_launches(const Arguments& arguments) {
  constexpr int most_launches = 1000;
  const auto text = arguments.value("--launches");
  return text ? static_cast<int>(parse_count("--launches", *text, 1, most_launches))
              : BenchOptions().launches;
}

double read_interval(const Arguments& arguments) {
  const auto text = arguments.value("--interval");
  if (!text) return BenchOptions().interval_pct;
  const auto value = parse_real(*text);
  if (!value || !(*value > 0 && *value <= 100)) {
    throw argument_error(fmt::format(
        "--interval '{}': allowed is a number of per cent above 0, at most 100", *text));
  }
  return *value;
}

// Whether two paths name one file, which need not exist. Devices may be named twice.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (a.empty() || b.empty() || a.starts_with("/dev/")) return false;
  return std::filesystem::weakly_canonical(a, ignored) ==
         std::filesystem::weakly_canonical(b, ignored);
}

// Checks that an output can be written, and the files that go beside it; nothing is written yet.
std::string read_output(const Arguments& arguments, const std::string& option,
                        const std::vector<std::string (*)(const std::string&)>& beside) {
  std::string path = arguments.value(option).value_or("");
  if (path.empty()) return path;
  try {
    require_writable(path);
    for (const auto path_beside : beside) require_writable(path_beside(path));
  } catch (const Error& error) {
    throw Error(error.kind(), option + ": " + error.what());
  }
  return path;
}

void read_files(const Arguments& arguments, BenchArguments& read, Complaints& complaints) {
  std::vector<std::string (*)(const std::string&)> beside = {samples_path};
  if (arguments.has("--phases") || arguments.has("--trace")) beside.push_back(phases_path);
  read.csv = complaints.check([&] { return read_output(arguments, "--csv", beside); });
  read.json = complaints.check([&] { return read_output(arguments, "--json", {}); });
  read.trace = complaints.check([&] { return read_output(arguments, "--trace", {}); });
  complaints.check([&] {
    if (!read.format.emplace(arguments, "csv").replaces_text()) return true;
    if (!read.options.google_benchmark.prints()) return true;
    throw argument_error("--format bmf and --benchmark_format both write to standard output");
  });
  complaints.check([&] {
    std::vector<std::string> of_csv = {read.csv};
    for (const auto path_beside : beside) {
      of_csv.push_back(read.csv.empty() ? "" : path_beside(read.csv));
    }
    for (const std::string& other : of_csv) {
      if (same_file(read.json, other)) {
        throw argument_error(fmt::format("--json '{}' is also the file of --csv", read.json));
      }
      if (same_file(read.trace, other)) {
        throw argument_error(fmt::format("--trace '{}' is also the file of --csv", read.trace));
      }
    }
    if (same_file(read.trace, read.json)) {
      throw argument_error(fmt::format("--trace '{}' is also the file of --json", read.trace));
    }
    return true;
  });
  complaints.check([&] {
    if (arguments.has("--phases") && read.csv.empty()) {
      throw argument_error(
          "--phases needs --csv FILE, because phases are written to FILE.phases.csv");
    }
    return true;
  });
  complaints.check([&] {
    if (read.resume && read.csv.empty()) {
      throw argument_error("--resume needs --csv FILE: the file of the interrupted run");
    }
    return true;
  });
}

// How everything is measured.
void read_measuring(const Arguments& arguments, BenchOptions& options, Complaints& complaints) {
  const auto choice = [&](const std::string& option, const std::vector<std::string>& allowed) {
    return complaints.check([&] { return read_choice(arguments, option, allowed); },
                            allowed.front());
  };
  const auto seconds = [&](const std::string& option, double& value) {
    value = complaints.check([&] { return read_seconds(arguments, option, value); });
  };
  options.cache = choice("--cache", {"warm", "cold"}) == "cold" ? CacheMode::cold : CacheMode::warm;
  options.timer = choice("--timer", {"steady", "event"}) == "event" ? Timer::event : Timer::steady;
  options.distribution = complaints.check([&] {
    const auto name = arguments.value("--distribution");
    if (name && (options.ladder || options.fusion)) {
      throw argument_error(
          "--distribution: rungs of ladders are for uniform inputs; leave out "
          "--ladder and --fusion");
    }
    return &read_distribution(name.value_or("uniform"));
  });
  seconds("--min-time", options.min_time);
  options.launches = complaints.check([&] { return read_launches(arguments); });
  options.interval_pct = complaints.check([&] { return read_interval(arguments); });
  seconds("--max-time", options.max_time);
  seconds("--ceilings-time", options.ceilings_seconds);
  // Beyond all caches a single pass of each loop takes longer.
  options.short_ceilings = options.ceilings_seconds < 1;
  options.google_benchmark =
      complaints.check([&] { return parse_google_benchmark_flags(arguments.passed()); });
  if (options.google_benchmark.min_time) options.min_time = *options.google_benchmark.min_time;
  const bool selected = arguments.has("--kernel") || arguments.has("--shape") ||
                        arguments.has("--preset") || arguments.has("--min-time");
  if (selected) return;
  options.budget_seconds = default_budget_seconds;
  options.first_problems = default_first_problems;
}

// The cells that all rows share. A script that named its files after the run says so in the
// environment; else the run names itself.
Row read_stamp() {
  Row stamp;
  if (const char* run_id = std::getenv("ROOFLANE_RUN_ID")) stamp.run_id = run_id;
  stamp.build_commit = build_commit;
  stamp.git_dirty = build_dirty;
  stamp.compiler = build_compiler;
  return stamp;
}

}  // namespace

void declare_bench(Arguments& arguments) {
  declare_problems(arguments);
  arguments.repeatable(
      "--preset", "NAME|FILE",
      "a list of shapes, or random:N[:SEED], or formats:N[:SEED]; default: default");
  declare_common(arguments, Many::yes);
  declare_workers(arguments);
  arguments.repeatable("--placement", "NAME|CPUS",
                       "order in which threads take CPUs: cores, spread, siblings or efficient, or "
                       "a list such as 0,2,4-7; a second one is measured beside the first, which "
                       "the ceilings are measured for; default: cores");
  arguments.option("--cache", "warm|cold", "warm: operands stay in the caches; cold: evicted");
  arguments.option("--timer", "steady|event", "host clock or device clock");
  arguments.option("--distribution", "NAME", distribution_help("default: uniform"));
  arguments.option("--min-time", "SECONDS", "least timed work per row");
  arguments.option("--launches", "N",
                   "repetitions of each group, in fresh processes; default: 3, and more until its "
                   "verdict is reached");
  arguments.option("--interval", "PERCENT",
                   "rounds may end when medians are known to ± this; default 2");
  arguments.option("--max-time", "SECONDS",
                   "limit for the rounds of a group, all repetitions together; undecided groups "
                   "use all of it; default 6");
  arguments.option("--ceilings-time", "SECONDS",
                   "limit for measuring the machine's ceilings first; default 15. Below 1, "
                   "bandwidth is measured only up to twice the largest problem");
  arguments.flag("--resume", "continue the interrupted run of --csv; no sample is repeated");
  arguments.option("--csv", "FILE",
                   "write rows to FILE and samples to FILE.samples.csv, and print the summary");
  arguments.option("--json", "FILE", "write rows and the context of the run");
  RowFormat::declare(arguments, "csv");
  arguments.flag("--phases",
                 "after the samples, record where the time of a run goes, in FILE.phases.csv for "
                 "`rooflane roofline --explain`");
  arguments.option("--trace", "FILE", "the same as Chrome trace events, for ui.perfetto.dev");
  arguments.flag("--profile", "print where the time of this benchmark went");
  arguments.flag("--all", "the summary also shows rows that are far slower");
  arguments.flag("--ladder",
                 "measure every rung of the variants' ladders and print the gain of each; default "
                 "preset: ladder");
  arguments.flag("--fusion",
                 "measure variants fused and with separate passes, and print the gain and the "
                 "limit that the roof sets; default preset: fusion");
  arguments.flag("--fail-on-regression",
                 "exit status 1 if a row is SLOWER than that of --against, or fails");
  arguments.flag("--dry-run", "print the cases and measure nothing");
  arguments.pass_through("--benchmark_");
  arguments.examples(
      {"rooflane bench --shape softmax:rows=64,cols=512 --min-time 0.001 --csv rows.csv",
       sizes_example, ladder_example, fusion_example, tracking_example,
       "rooflane bench --dry-run"});
}

BenchArguments read_bench_arguments(const Arguments& arguments, Catalogue& catalogue,
                                    const CliSettings& settings) {
  BenchArguments read;
  read.dry_run = arguments.has("--dry-run");
  read.resume = arguments.has("--resume");
  read.profile = arguments.has("--profile");
  read.shows_all = arguments.has("--all");
  read.fail_on_regression = arguments.has("--fail-on-regression");
  const bool ladder = arguments.has("--ladder"), fusion = arguments.has("--fusion");
  Complaints complaints;
  CommonOptions common = read_common(arguments, catalogue, Many::yes, complaints);
  const std::vector<BenchProblem> problems = read_problems(arguments, catalogue,
                                                           ladder   ? "ladder"
                                                           : fusion ? "fusion"
                                                                    : "default",
                                                           complaints);
  const std::vector<const Kernel*> kernels = kernels_of(problems, catalogue);
  if (ladder && common.variants.empty()) {
    common.variants = complaints.check([&] { return variants_with_ladder(catalogue, kernels); });
  }
  if (fusion && common.variants.empty()) {
    common.variants = complaints.check([&] { return variants_that_fuse(catalogue, kernels); });
  }
  const std::vector<std::string> guests =
      add_workers(arguments, common, settings, catalogue, complaints);
  Selection selection = select_targets(catalogue, kernels, common.variants, complaints, guests);
  complaints.check([&] {
    check_tunings(common.tunings, selection.targets);
    return true;
  });
  read.named = common.variants;
  read.absent = std::move(selection.absent);
  read.options = bench_options(common, problems, selection.targets, catalogue, settings);
  read.options.ladder = ladder;
  read.options.fusion = fusion;
  read.options.tuned_beside_model = common.tuned_named;
  read.options.placements = arguments.values("--placement");
  complaints.check([&] {
    if (!read.options.placements.empty()) use_placement(read.options.placements.front());
    return true;
  });
  read.options.stamp = read_stamp();
  read_measuring(arguments, read.options, complaints);
  read_files(arguments, read, complaints);
  read.options.phases = arguments.has("--phases") || !read.trace.empty();
  if (!read.trace.empty()) read.options.events_of_thread = traced_events;
  for (const BenchProblem& problem : problems) {
    complaints.check([&] {
      require_memory(problem.problem, 1);
      return true;
    });
  }
  complaints.raise();
  return read;
}

}  // namespace rooflane
