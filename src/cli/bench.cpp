// `bench`: arguments → suite → rows → files and summary. bench_arguments.cpp reads the arguments.
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <utility>

#include "bench/groups.hpp"
#include "bench/run_files.hpp"
#include "cli/bench_arguments.hpp"
#include "cli/build_facts.hpp"
#include "cli/fusion.hpp"
#include "cli/ladder.hpp"
#include "cli/scripts.hpp"
#include "cli/slowdowns.hpp"
#include "cli/standard_streams.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "io/compare_text.hpp"
#include "io/crossover.hpp"
#include "io/csv.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "io/output_lock.hpp"
#include "io/size_classes.hpp"
#include "io/summary_text.hpp"
#include "io/table.hpp"
#include "io/trace.hpp"
#include "measure/ceilings_json.hpp"

namespace rooflane {
namespace {

class StandardOutputSink : public RowSink {
 public:
  explicit StandardOutputSink(ProgressLine& progress) : progress_(progress) {}
  void on_row(const Row& row) override {
    progress_.wipe();
    if (!std::exchange(header_written_, true)) std::cout << csv_header();
    std::cout << csv_line(row);
    flush_standard_output();  // hours may follow
  }

 private:
  ProgressLine& progress_;
  bool header_written_ = false;
};

// Keeps rows with their samples for the summary of this run.
class MemorySink : public RowSink {
 public:
  MemorySink(const Earlier* earlier, ProgressLine& progress, bool prints)
      : progress_(progress), prints_(prints) {
    if (earlier == nullptr) return;
    for (const Row& row : earlier->rows) rows_.push_back({row, {}});
    samples_ = earlier->samples;
  }
  void on_sample(const Sample& sample) override { samples_.push_back(sample); }
  void on_row(const Row& row) override { rows_.push_back({row, {}}); }
  // While the others are measured there is something to read.
  void on_first(const std::vector<Row>& rows) override {
    if (!prints_) return;
    std::vector<MeasuredRow> first;
    for (const Row& row : rows) first.push_back({row, {}});
    give_samples(first);
    progress_.wipe();
    std::cerr << "The first problems so far; the others follow:\n"
              << terminal_summary(summarise_rows(first)) << "\n"
              << std::flush;
  }
  // All rows with their samples, when the run has ended.
  const std::vector<MeasuredRow>& rows() {
    give_samples(rows_);
    samples_.clear();
    return rows_;
  }

 private:
  void give_samples(std::vector<MeasuredRow>& rows) const {
    for (const Sample& sample : samples_) {
      const auto position = static_cast<std::size_t>(sample.row);
      if (position < rows.size()) rows[position].samples.push_back(sample);
    }
  }

  ProgressLine& progress_;
  bool prints_;  // a first table on standard error
  std::vector<MeasuredRow> rows_;
  std::vector<Sample> samples_;
};

// Collects what threads did for --trace.
class TraceSink : public RowSink {
 public:
  void on_phases(std::int64_t, const Row& row, const PhaseProfile& profile) override {
    const std::string threads =
        row.threads ? fmt::format(" {} thread{}", *row.threads, *row.threads == 1 ? "" : "s") : "";
    trace_.add(fmt::format("{}:{} {} {}{}", row.kernel, row.shape, row.variant, row.isa, threads),
               profile);
  }
  void on_row(const Row&) override {}
  void write(const std::string& path) const { trace_.write(path); }

 private:
  Trace trace_;
};

// "[ 37 %, 1:24 left] softmax:rows=512,cols=2048 threads=2 warm".
std::string progress_text(const Progress& progress) {
  std::string left;
  if (progress.seconds_left >= 0) {
    const auto seconds = static_cast<long>(std::lround(progress.seconds_left));
    left = seconds < 3600 ? fmt::format(", {}:{:02} left", seconds / 60, seconds % 60)
                          : fmt::format(", {} h {:02} min left", seconds / 3600, seconds / 60 % 60);
  }
  return fmt::format("[{:3.0f} %{}] {}", 100 * progress.done, left, progress.doing);
}

// The context of the JSON: arguments, environment of each worker, what disturbs the machine,
// ceilings. The key of a fix stays as in files that users have kept.
nlohmann::ordered_json context_of(const Arguments& arguments, const BenchOptions& options,
                                  const BenchResult& result,
                                  const std::vector<Slowdown>& slowdowns) {
  auto disturbing = nlohmann::ordered_json::array();
  for (const Slowdown& slowdown : slowdowns) {
    disturbing.push_back({{"what", slowdown.what}, {"mend", slowdown.fix}});
  }
  auto workers = nlohmann::ordered_json::array();
  for (const WorkerContext& worker : result.workers) {
    auto environment = nlohmann::ordered_json::object();
    for (const auto& [name, value] : worker.environment) environment[name] = value;
    workers.push_back({{"variant", worker.variant},
                       {"threads", worker.threads},
                       {"command", recorded_command(worker.command)},
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

void print_cases(const Suite& suite) {
  for (const GroupCase* c : suite.cases()) std::cout << c->measured.text() << "\n";
}

// Comes below everything on standard output.
void print_notes(const BenchArguments& read, const std::vector<Slowdown>& slowdowns) {
  flush_standard_output();
  note_absent(read.absent);
  for (const Slowdown& slowdown : slowdowns) {
    print_note(fmt::format("{}; fix: {}", slowdown.what, slowdown.fix));
  }
}

// Where the time of groups went: seconds, steps, and what a step took.
void print_profile(const std::vector<TimeUse::Activity>& activities) {
  TextTable table{{{"activity", false}, {"s", true}, {"steps", true}, {"ms a step", true}}, {}};
  double total = 0;
  for (const TimeUse::Activity& activity : activities) {
    if (!activity.what.starts_with("of that")) total += activity.seconds;
    table.rows.push_back({activity.what, fmt::format("{:.2f}", activity.seconds),
                          fmt::format("{}", activity.steps),
                          fmt::format("{:.2f}", 1e3 * activity.seconds / activity.steps)});
  }
  table.rows.push_back({"all of groups", fmt::format("{:.2f}", total), "", ""});
  std::cerr << terminal_table(table);
}

// A file that serves nothing here would silently change nothing.
void note_unused(const Suite& suite, const std::string& file) {
  for (const GroupCase* c : suite.cases()) {
    if (c->measured.stored) return;
  }
  print_note(fmt::format("no entry of '{}' applies to a case of this run", file));
}

// Measures what is left to do, with rows on their way to files or standard output as they come.
std::vector<Row> measure(const Arguments& arguments, BenchArguments& read, const Suite& suite,
                         const Interrupted* interrupted, const std::vector<Slowdown>& slowdowns,
                         ProgressLine& progress, MemorySink& memory) {
  BenchOptions& options = read.options;
  if (interrupted != nullptr) {
    options.stamp.run_id = interrupted->run_id;
    options.ceilings = &interrupted->ceilings;
    options.earlier = &interrupted->earlier;
  }
  options.progress = [&](const Progress& p) { progress.show(progress_text(p)); };
  std::vector<RowSink*> sinks = {&memory};
  std::optional<RunFiles> files;
  StandardOutputSink standard_output(progress);
  if (read.has_file()) {
    sinks.push_back(&files.emplace(read.csv, options, suite, interrupted));
  } else if (read.prints_summary() && !options.ladder && !options.fusion) {
    sinks.push_back(&standard_output);
  }
  TraceSink trace;
  if (!read.trace.empty()) sinks.push_back(&trace);
  BenchResult result = run_bench(options, suite, sinks);
  options.progress = nullptr;
  progress.wipe();
  if (!read.trace.empty()) trace.write(read.trace);
  if (read.profile) print_profile(result.time_use);
  if (!read.json.empty()) {
    auto document = document_json(result.rows, context_of(arguments, options, result, slowdowns));
    if (options.fusion) {
      const std::vector<MeasuredRow>& rows = memory.rows();
      document["fusions"] =
          fusions_json(fusions_of(rows, bytes_of_fusion(*options.catalogue)), rows);
    }
    write_json(read.json, document);
  }
  if (files) files->finish();
  return std::move(result.rows);
}

// What was measured, in words; returns whether another build's rows were faster.
bool print_summary(const BenchArguments& read, const std::vector<MeasuredRow>& measured) {
  const bool ladder = read.options.ladder, fusion = read.options.fusion;
  const bool prints = read.prints_summary();
  const std::vector<SummaryGroup> groups = summarise_rows(measured);
  if (prints && read.has_file() && !ladder && !fusion) {
    std::cout << terminal_summary(groups, read.shows_all ? Shown::all : Shown::close)
              << crossover_text(measured, false);
  }
  if (prints && fusion) {
    std::cout << terminal_fusions(fusions_of(measured, bytes_of_fusion(*read.options.catalogue)));
  } else if (prints && (read.has_file() || ladder)) {
    std::cout << terminal_ladders(ladders_of(measured), rung_texts(*read.options.catalogue));
  }
  bool regressed = false;
  for (const std::string& build : other_builds(measured)) {
    const Comparison comparison = compare_against(measured, build);
    regressed = regressed || comparison.regressed();
    if (!prints || !read.has_file()) continue;
    const std::string header = "old: V@" + build + ", new: V, in the same rounds";
    std::cout << "\n" << terminal_comparison(comparison, {&header, 1});
  }
  if (prints && read.has_file() && !ladder && !fusion) {
    std::cout << "\n" << terminal_classes(size_classes(groups));
  }
  return regressed;
}

int run_bench(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  BenchArguments read = read_bench_arguments(arguments, catalogue, settings);
  const Suite suite = make_suite(read.options);  // refuses what is wrong
  check_planned_tunings(suite);
  if (read.options.tuned_beside_model) note_unused(suite, *arguments.value("--tuned"));
  if (read.dry_run || read.options.google_benchmark.list) {
    if (read.dry_run) {
      print_cases(suite);
    } else {
      list_in_google_benchmark(read.options.google_benchmark, suite.names());
    }
    print_notes(read, {});
    return 0;
  }
  std::optional<OutputLock> lock;
  if (read.has_file()) lock.emplace("--csv", read.csv);
  std::optional<Interrupted> interrupted;
  if (read.resume) interrupted = read_interrupted(read.csv, read.options, suite);
  ProgressLine progress;
  MemorySink memory(interrupted ? &interrupted->earlier : nullptr, progress,
                    read.prints_summary() && read.has_file());
  std::vector<Row> rows;
  std::vector<Slowdown> slowdowns;
  if (interrupted && interrupted->complete) {
    print_note(fmt::format("the run of '{}' is already complete", read.csv));
    rows = interrupted->earlier.rows;
  } else {
    slowdowns = find_slowdowns("");
    rows = measure(arguments, read, suite, interrupted ? &*interrupted : nullptr, slowdowns,
                   progress, memory);
  }
  const bool regressed = print_summary(read, memory.rows());
  if (read.format->asked()) read.format->write(memory.rows());
  print_notes(read, slowdowns);
  StatusesByVariant seen;
  for (const Row& row : rows) {
    if (const auto status = parse_status(row.status)) seen[row.variant].insert(*status);
  }
  const int status = exit_status_of(seen, read.named);
  return status == 0 && regressed && read.fail_on_regression ? 1 : status;
}

}  // namespace

const Verb bench_verb = {"bench", "verifies and times variants, writes rows", declare_bench,
                         run_bench};

}  // namespace rooflane
