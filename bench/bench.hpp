// The benchmark: its options, and run_bench, which measures the suite (groups.hpp) without
// printing. group_runner.hpp measures a group, row_assembly.hpp builds a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/google_benchmark.hpp"
#include "bench/time_use.hpp"
#include "core/catalogue.hpp"
#include "core/phase_recorder.hpp"
#include "core/status.hpp"
#include "core/tuned.hpp"
#include "io/csv.hpp"
#include "io/row.hpp"
#include "measure/case.hpp"
#include "measure/ceilings.hpp"

namespace rooflane {

// A problem to measure and the preset that it came from (empty: from --shape).
struct BenchProblem {
  Problem problem;
  std::string preset;
};

// How far the run is. `seconds_left` is an estimate, negative while there is none.
struct Progress {
  std::string doing;  // "ceilings", or the group: "gemm:m=512,n=512,k=512 threads=2 warm"
  double done = 0;    // in [0,1]
  double seconds_left = -1;
};

// What was measured before in a run that was interrupted: it is not measured again.
struct Earlier {
  std::vector<Row> rows;                                 // of whole groups, from the first on
  std::vector<Sample> samples;                           // of all rows
  std::map<std::int64_t, std::int64_t> runs_per_sample;  // by row
  std::map<std::int64_t, std::pair<Status, std::string>> failures;  // by row: status and reason
};

struct BenchOptions {
  const Catalogue* catalogue = nullptr;
  std::vector<BenchProblem> problems;
  std::vector<std::string> variants;  // names as users write them; empty: every variant
  std::vector<int> threads = {1};     // one group each
  // As core/placement.hpp takes them. The first is that of the whole run, its ceilings included;
  // the others are measured beside it by variants that run on the CPU. Empty: the default.
  std::vector<std::string> placements;
  std::vector<std::string> isas;  // for variants with ISA targets; empty: the CPU's best
  std::string math = "fp32";
  // Variant name and text, {"hwy", "mc=96,kc=384"}: for every measured kernel's variant of the
  // name.
  std::vector<std::pair<std::string, std::string>> tunings;
  // Where variants without a tuning among those find theirs; null: nowhere.
  std::shared_ptr<const TunedSchedules> tuned;
  // A case that finds one there is measured beside one with the variant's own choice.
  bool tuned_beside_model = false;
  // Every rung of the variants' ladders with the variants themselves, one group per problem over
  // all thread counts. Every variant must have a ladder; excludes `tunings`.
  bool ladder = false;
  // Likewise the one rung that does apart what its variant fuses, beside the variant.
  bool fusion = false;
  std::string library;  // of variants that call one, unless their entry names its own
  int device = 0;       // of backends with devices
  CacheMode cache = CacheMode::warm;
  Timer timer = Timer::steady;
  double min_time = 0.02;   // seconds of timed work of each contender, at least
  int launches = 0;         // repetitions of each group; 0: as many as its verdict needs
  double interval_pct = 2;  // the median of a row is known well enough when it is to ± this
  // Seconds for the rounds of a group, all repetitions together; an undecided one goes on until
  // then.
  double max_time = 6;
  double timeout = 60;            // seconds until a worker's answer is a TIMEOUT
  double scalar_run_seconds = 5;  // a one-thread variant skips problems predicted to take longer
  double budget_seconds = 0;      // whole run; undecided groups use what is left of it. 0: no limit
  std::size_t first_problems = 0;  // so many are measured, and their rows told, before the others
  bool phases = false;             // record, beside the samples, where a run's time goes
  std::int64_t events_of_thread = 0;  // with phases: so many of each thread to keep for a trace
  std::uint64_t seed = 1;
  const Distribution* distribution = &uniform;  // of the inputs that are verified and timed
  bool in_process = false;  // workers in this process: no crash or timeout is survived
  // The program and its first arguments that speak the worker protocol.
  std::vector<std::string> worker_command = {"/proc/self/exe", "worker"};
  std::size_t worker_memory_bytes = 0;    // a worker that grows beyond is stopped; 0: what is free
  GoogleBenchmarkFlags google_benchmark;  // its filter chooses cases, its reporters get the rows
  // Cells that the caller knows: run_id (empty: made here), build_commit, git_dirty, compiler.
  Row stamp;
  // Ceilings measured before in this run; null: measured here first.
  const Ceilings* ceilings = nullptr;
  double ceilings_seconds = 15;
  // Bandwidth is measured up to twice the largest problem's operands, not beyond all caches: enough
  // for the rows' roofs.
  bool short_ceilings = false;
  const Earlier* earlier = nullptr;               // resume from here; null: from the beginning
  std::function<void(const Progress&)> progress;  // may be null

  // Repetitions of every group: in fresh processes, with fresh memory and plans, far apart in time.
  int least_repetitions() const { return launches > 0 ? launches : 3; }
};

// Where rows go: CSV, samples file, terminal. Exceptions end the run.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // Once, before the first group.
  virtual void on_begin(const std::string& /*run_id*/, const Ceilings&) {}
  // How many runs make a sample of a row, before its first sample.
  virtual void on_calibration(std::int64_t /*row*/, std::int64_t /*runs_per_sample*/) {}
  // A row will carry no speed.
  virtual void on_failure(std::int64_t /*row*/, Status, const std::string& /*reason*/) {}
  virtual void on_sample(const Sample&) {}  // at once
  // Where the time of a row's runs went, right before the row.
  virtual void on_phases(std::int64_t /*number*/, const Row&, const PhaseProfile&) {}
  virtual void on_row(const Row& row) = 0;  // rows of a group when it ends, in order
  // Rows of the first problems as they are before the others begin; they come again by on_row.
  virtual void on_first(const std::vector<Row>& /*rows*/) {}
};

// What a worker was started as, and with which environment variables.
struct WorkerContext {
  std::string variant;
  int threads = 1;
  std::vector<std::string> command;  // empty: in this process
  std::vector<std::pair<std::string, std::string>> environment;
  friend bool operator==(const WorkerContext&, const WorkerContext&) = default;
};

struct BenchResult {
  std::vector<Row> rows;
  std::string run_id;
  Ceilings ceilings;
  std::vector<WorkerContext> workers;
  std::vector<TimeUse::Activity> time_use;  // where the time of groups went
};

struct Suite;  // groups.hpp

// Measures the ceilings, then all groups of the suite, which was made from these options.
// Repetition by repetition their cases are verified and measured, until each group has its verdict
// or time is up. Rows of finished groups go to the sinks in the suite's order. Throws Error before
// anything is measured if a problem is larger than memory. A failure of one variant becomes its
// row's status.
BenchResult run_bench(const BenchOptions& options, const Suite& suite,
                      const std::vector<RowSink*>& sinks);

}  // namespace rooflane
