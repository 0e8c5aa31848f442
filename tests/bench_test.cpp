// The benchmark: groups, rounds, statuses, rows, SUSPECT, Google Benchmark's flags. Speeds are only
// compared where they differ by 20 times, and only which is the greater: other tests run beside.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absent_variants.hpp"
#include "backends/highway.hpp"
#include "bench/bench.hpp"
#include "bench/google_benchmark.hpp"
#include "bench/groups.hpp"
#include "bench/race.hpp"
#include "bench/row_assembly.hpp"
#include "bench/shapes.hpp"
#include "bench/worker_pool.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "fakes.hpp"

using namespace rooflane;

namespace {

const Catalogue& catalogue() {
  static const Catalogue all = fake_catalogue();
  return all;
}

// Ceilings that no real machine reaches, so that nothing honest is suspect.
const Ceilings& far_ceilings() {
  static const Ceilings ceilings = [] {
    Ceilings far;
    for (const int threads : {1, 2}) {
      far.fma.push_back({"fp32", "AVX2", threads, "", 1e5});
      BandwidthCurve curve;
      curve.threads = threads;
      for (const double bytes : {1e4, 1e9}) {
        BandwidthPoint point;
        point.footprint_bytes = bytes;
        point.read_gb_s = point.write_gb_s = point.copy_gb_s = 1e5;
        curve.points.push_back(point);
      }
      curve.plateaus = {{"L1", 1e4}, {"memory", 1e9}};
      far.bandwidth.push_back(curve);
    }
    return far;
  }();
  return ceilings;
}

BenchOptions options_for(const std::vector<std::string>& shapes,
                         const std::vector<std::string>& variants) {
  BenchOptions options;
  options.catalogue = &catalogue();
  for (const std::string& shape : shapes) {
    for (const Problem& problem : parse_shapes(shape, catalogue().kernels())) {
      options.problems.push_back({problem, ""});
    }
  }
  options.variants = variants;
  options.worker_command = {FAKE_PROGRAM, "worker"};
  options.worker_memory_bytes = std::size_t{384} << 20;
  options.ceilings = &far_ceilings();
  options.min_time = 0;
  return options;
}

struct Recorder final : RowSink {
  void on_sample(const Sample& sample) override { samples.push_back(sample); }
  void on_row(const Row& row) override {
    samples_before_row.push_back(samples.size());
    rows.push_back(row);
  }
  std::vector<Sample> samples;
  std::vector<Row> rows;
  std::vector<std::size_t> samples_before_row;
};

std::map<std::string, Row> by_variant(const std::vector<Row>& rows) {
  std::map<std::string, Row> found;
  for (const Row& row : rows) found[row.variant] = row;
  return found;
}

BenchResult run(const BenchOptions& options, const std::vector<RowSink*>& sinks) {
  return run_bench(options, make_suite(options), sinks);
}

template <class Step>
std::string refusal_of(Step&& step) {
  try {
    step();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal(const BenchOptions& options) {
  return refusal_of([&] { make_suite(options); });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("each kind of failure becomes its row's status, and the others are measured") {
  BenchOptions options = options_for(
      {"gemm:m=24,n=24,k=24"},
      {"scalar", "fake-crash", "fake-exit", "fake-hungry", "fake-zeros", "fake-stale",
       "fake-input-changer", "fake-overrun", "fake-bad-alloc", "fake-unsupported", "fake-rubbish"});
  options.timeout = 250;
  Recorder recorder;
  const BenchResult result = run(options, {&recorder});
  REQUIRE(result.rows.size() == 11);
  CHECK(recorder.rows.size() == 11);
  const auto rows = by_variant(result.rows);
  const std::map<std::string, std::pair<std::string, std::string>> expected = {
      {"scalar", {"PASSED", ""}},
      {"fake-rubbish", {"PASSED", ""}},
      {"fake-crash", {"RUNTIME_ERROR", "SIG"}},
      {"fake-exit", {"RUNTIME_ERROR", "status 3"}},
      {"fake-hungry", {"RUNTIME_ERROR", "out of memory"}},
      {"fake-bad-alloc", {"RUNTIME_ERROR", "out of memory"}},
      {"fake-zeros", {"FAILED", "expected"}},
      {"fake-stale", {"FAILED", "after the measurement: the run kept its output"}},
      {"fake-input-changer", {"FAILED", "changed its inputs"}},
      {"fake-overrun", {"FAILED", "outside the output"}},
      {"fake-unsupported", {"UNSUPPORTED", "never in the mood"}}};
  for (const auto& entry : expected) {
    const auto& [status, reason] = entry.second;
    INFO(entry.first);
    const Row& row = rows.at(entry.first);
    CHECK(row.status == status);
    CHECK(contains(row.reason, reason));
    const bool passed = status == "PASSED";
    for (const auto& cell : {row.p50_ns, row.min_ns, row.gflops, row.gb_s, row.roof_pct}) {
      CHECK(cell.has_value() == passed);
    }
    CHECK(row.n_samples.has_value() == passed);
  }
}

TEST_CASE("a distribution's inputs are verified and timed, and its name is part of the row") {
  BenchOptions options = options_for({"gemm:m=24,n=24,k=24"}, {"scalar", "fake-zeros"});
  options.distribution = &distribution_named("cancelling");
  const BenchResult result = run(options, {});
  const auto rows = by_variant(result.rows);
  CHECK(rows.at("scalar").status == "PASSED");
  CHECK(rows.at("scalar").distribution == "cancelling");
  CHECK(rows.at("scalar").p50_ns);
  CHECK(rows.at("fake-zeros").status == "FAILED");
  CHECK(rows.at("fake-zeros").reason.starts_with("cancelling inputs: "));
}

TEST_CASE("rows without a distribution in their file are of uniform inputs") {
  const BenchResult result = run(options_for({"gemm:m=24,n=24,k=24"}, {"scalar"}), {});
  CHECK(result.rows.at(0).distribution.empty());
}

TEST_CASE("a problem that a distribution cannot be drawn for is SKIPPED with the reason") {
  BenchOptions options =
      options_for({"gemm:m=8,n=8,k=8,a_type=s8,b_type=s8,c_type=s32"}, {"scalar"});
  options.math = "int8";
  options.distribution = &distribution_named("wide");
  const Row row = run(options, {}).rows.at(0);
  CHECK(row.status == "SKIPPED");
  CHECK(row.reason == "no wide inputs: no operand holds real numbers");
}

TEST_CASE("a variant that hangs is a TIMEOUT, and the others are measured") {
  BenchOptions options = options_for({"gemm:m=24,n=24,k=24"}, {"fake-hang", "scalar"});
  options.timeout = 5;
  const auto rows = by_variant(run(options, {}).rows);
  CHECK(rows.at("fake-hang").status == "TIMEOUT");
  CHECK(contains(rows.at("fake-hang").reason, "5 s"));
  CHECK_FALSE(rows.at("fake-hang").p50_ns);
  CHECK(rows.at("scalar").status == "PASSED");
}

TEST_CASE("a row holds what the contract says, and samples come before their row") {
  BenchOptions options = options_for({"gemm:m=16,n=24,k=8,alpha=0.5"}, {"scalar"});
  options.stamp.build_commit = "abc";
  options.seed = 7;
  options.problems[0].preset = "mine";
  Recorder recorder;
  const BenchResult result = run(options, {&recorder});
  REQUIRE(result.rows.size() == 1);
  const Row& row = result.rows[0];
  CHECK(row.status == "PASSED");
  CHECK(row.kernel == "gemm");
  CHECK(row.shape == "m=16,n=24,k=8,alpha=0.5");
  CHECK(row.preset == "mine");
  CHECK(row.isa == "baseline");
  CHECK(row.threads == 1);
  CHECK(row.seed == 7);
  CHECK(row.cache == "warm");
  CHECK(row.timer == "steady");
  CHECK(row.math == "fp32");
  CHECK(row.dtype == "float32");
  CHECK(row.backend == "scalar");
  CHECK(row.build_commit == "abc");
  CHECK(row.run_id == result.run_id);
  CHECK(row.run_id.size() == std::string("YYYYMMDDTHHMMSSZ-xxxx").size());
  CHECK_FALSE(row.affinity.empty());
  CHECK(row.flops == 2.0 * 16 * 24 * 8);
  CHECK(row.bytes == 4.0 * (16 * 8 + 8 * 24 + 16 * 24));
  REQUIRE(row.p50_ns);
  CHECK(*row.gflops == doctest::Approx(*row.flops / *row.p50_ns));
  CHECK(*row.gb_s == doctest::Approx(*row.bytes / *row.p50_ns));
  CHECK(*row.ai == doctest::Approx(*row.flops / *row.bytes));
  CHECK(*row.roof_pct_lo <= *row.roof_pct);
  CHECK(*row.roof_pct <= *row.roof_pct_hi);
  CHECK(*row.n_samples >= 7);
  CHECK(*row.runs_per_sample >= 1);
  CHECK(*row.err_value <= *row.err_threshold);
  CHECK(*row.plan_ns >= 0);
  CHECK(*row.peak_rss_bytes > 0);
  CHECK_FALSE(row.h2d_ns);
  CHECK(static_cast<std::int64_t>(recorder.samples.size()) == *row.n_samples);
  CHECK(recorder.samples_before_row.at(0) == recorder.samples.size());
  CHECK(*row.launch >= BenchOptions().least_repetitions());
  CHECK(recorder.samples.back().launch == *row.launch);
  CHECK(*row.group_s > 0);
  CHECK((row.stop == "interval" || row.stop == "time" || row.stop == "rounds"));
  CHECK(row.interval_pct);
  for (std::size_t i = 0; i < recorder.samples.size(); ++i) {
    const bool new_launch =
        i == 0 || recorder.samples[i].launch == recorder.samples[i - 1].launch + 1;
    CHECK(recorder.samples[i].row == 0);
    CHECK(recorder.samples[i].round == (new_launch ? 0 : recorder.samples[i - 1].round + 1));
    CHECK(recorder.samples[i].ns > 0);
    CHECK(recorder.samples[i].probe_ns > 0);
  }
}

TEST_CASE("a variant that is 20 times slower is ranked slower, and gets one sample a repetition") {
  BenchOptions options = options_for({"gemm:m=32,n=32,k=32"}, {"fake-slow", "scalar"});
  options.launches = 3;  // a busy machine's noise asks for more
  Recorder recorder;
  const BenchResult result = run(options, {&recorder});
  const auto rows = by_variant(result.rows);
  CHECK(rows.at("fake-slow").status == "PASSED");
  CHECK(*rows.at("fake-slow").p50_ns > *rows.at("scalar").p50_ns);
  CHECK(rows.at("fake-slow").n_samples == 3);
  CHECK(*rows.at("scalar").n_samples >= 7);
  std::vector<std::pair<std::int64_t, std::int64_t>> slots;
  for (const Sample& sample : recorder.samples) {
    if (sample.row == 0) slots.emplace_back(sample.launch, sample.round);
  }
  CHECK(slots == std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 0}, {2, 0}, {3, 0}});
}

namespace {

// A group of hwy, blas and scalar, with samples of so many rounds in each repetition.
struct Field {
  std::vector<GroupCase> cases;
  std::vector<Measured> measured;
  Group group;
  BenchOptions options;

  explicit Field(const std::vector<std::string>& variants) {
    for (const std::string& variant : variants) {
      cases.emplace_back();
      cases.back().measured.variant = variant;
    }
    group.cases = cases;
    measured.resize(cases.size());
    for (std::size_t i = 0; i < measured.size(); ++i) measured[i].planned = &cases[i];
  }
  // Times of the cases in each of three rounds, those of later rounds a little longer.
  void add(std::int64_t repetition, const std::vector<double>& ns, int rounds = 3) {
    for (std::size_t i = 0; i < ns.size(); ++i) {
      for (std::int64_t round = 0; round < rounds; ++round) {
        const double time = ns[i] * (1 + 0.001 * static_cast<double>(round));
        add_sample(measured[i], {static_cast<std::int64_t>(i), repetition, round, time, 1000.0});
      }
    }
  }
  Race race() const { return race_of(group, measured, options); }
};

}  // namespace

TEST_CASE("before any sample a calibration three times the fastest takes a case out of the race") {
  Field field({"hwy", "blas", "scalar"});
  field.measured[0].calibration.run_ns = 100;
  field.measured[1].calibration.run_ns = 250;
  field.measured[2].calibration.run_ns = 350;
  CHECK(field.race().contender == std::vector<bool>{true, true, false});
}

TEST_CASE(
    "who is beyond doubt slower than 1.5 times the leader leaves the race; a tie decides it") {
  Field field({"hwy", "blas", "onednn"});
  for (int repetition = 1; repetition <= 5; ++repetition) field.add(repetition, {100, 100.5, 200});
  const Race race = field.race();
  CHECK(race.contender == std::vector<bool>{true, true, false});
  CHECK(race.decided);
  CHECK(race.narrow);
  CHECK(race.wanted == std::vector<bool>{true, true, false});  // the third has its samples
}

TEST_CASE("a disturbed sample of one out of the race asks for another, which decides the group") {
  Field field({"hwy", "scalar"});
  field.add(1, {100, 900}, 1);
  field.add(2, {100, 9000}, 1);
  field.add(3, {400, 900}, 1);
  Race race = field.race();
  CHECK(race.contender == std::vector<bool>{true, false});
  CHECK_FALSE(race.decided);
  CHECK(race.wanted[1]);
  for (int repetition = 4; repetition <= 7; ++repetition) field.add(repetition, {100, 900}, 1);
  race = field.race();
  CHECK(race.decided);
  CHECK_FALSE(race.wanted[1]);
}

TEST_CASE("repetitions that disagree decide nothing, and all that is close goes on racing") {
  Field field({"hwy", "blas"});
  field.add(1, {100, 103});
  field.add(2, {104, 100});
  field.add(3, {100, 106});
  const Race race = field.race();
  CHECK(race.contender == std::vector<bool>{true, true});
  CHECK_FALSE(race.decided);
}

TEST_CASE("a variant and its own of another build race, however far behind the fastest they are") {
  Field field({"hwy", "opencl", "opencl@old"});
  for (int repetition = 1; repetition <= 3; ++repetition) {
    field.add(repetition, {100, 1000, repetition == 2 ? 1100.0 : 970.0});
  }
  Race race = field.race();
  CHECK(race.contender == std::vector<bool>{true, true, true});
  CHECK_FALSE(race.decided);
  field.measured[2].status = Status::failed;  // then there is nothing to hold it against
  race = field.race();
  CHECK(race.contender[1] == false);
  CHECK(race.decided);
}

TEST_CASE("inaccurate and failed cases decide nothing; ladders keep every rung in the race") {
  Field field({"hwy", "blas", "scalar"});
  for (int repetition = 1; repetition <= 3; ++repetition) field.add(repetition, {100, 101, 900});
  field.measured[1].status = Status::inaccurate;
  CHECK(field.race().decided);
  CHECK(field.race().contender == std::vector<bool>{true, true, false});
  field.options.ladder = true;
  CHECK(field.race().contender == std::vector<bool>{true, true, true});
}

TEST_CASE("an undecided group goes on until --max-time, a number of launches is kept exactly") {
  // Two of one kind: nothing tells them apart beyond doubt, and other tests run beside.
  BenchOptions options = options_for({"gemm:m=64,n=64,k=64"}, {"scalar", "fake-rubbish"});
  options.max_time = 0.3;
  const BenchResult adaptive = run(options, {});
  CHECK(*adaptive.rows[0].launch >= 3);
  options.launches = 2;
  const BenchResult exact = run(options, {});
  CHECK(*exact.rows[0].launch == 2);
}

TEST_CASE("the first problems are told before the others are measured, and again at the end") {
  struct First final : RowSink {
    void on_sample(const Sample& sample) override { last_row = sample.row; }
    void on_first(const std::vector<Row>& told) override {
      rows = told;
      row_before = last_row;
    }
    void on_row(const Row& row) override { shapes.push_back(row.shape); }
    std::int64_t last_row = -1, row_before = -1;
    std::vector<Row> rows;
    std::vector<std::string> shapes;
  } sink;
  BenchOptions options = options_for({"gemm:m=8..32*2,n=8,k=8"}, {"scalar"});
  options.first_problems = 2;
  run(options, {&sink});
  REQUIRE(sink.rows.size() == 2);
  CHECK(sink.rows[1].shape == "m=16,n=8,k=8");
  CHECK(sink.rows[1].p50_ns);
  CHECK(sink.row_before <= 1);
  CHECK(sink.shapes == std::vector<std::string>{"m=8,n=8,k=8", "m=16,n=8,k=8", "m=32,n=8,k=8"});
}

TEST_CASE("a variant that keeps its output beats the strict roof and becomes SUSPECT") {
  BenchOptions options = options_for({"gemm:m=64,n=64,k=20000"}, {"fake-too-fast", "scalar"});
  options.ceilings = nullptr;
  options.ceilings_seconds = 1;
  const BenchResult result = run(options, {});
  const auto rows = by_variant(result.rows);
  CHECK(rows.at("scalar").status == "PASSED");
  const Row& suspect = rows.at("fake-too-fast");
  CHECK(suspect.status == "SUSPECT");
  CHECK(contains(suspect.reason, "measured again"));
  CHECK(suspect.p50_ns);  // keeps its figures
  CHECK(*suspect.roof_pct > 103);
  CHECK_FALSE(result.ceilings.fma.empty());
}

TEST_CASE("roof percentages follow the probe of their round, of a device not") {
  GroupCase planned;
  planned.measured.threads = 1;
  Measured measured;
  measured.planned = &planned;
  measured.ns = {100, 200, 100};
  measured.probe_ns = {10, 20, 10};
  const std::vector<double> percentages = roof_percentages(measured, 50);
  CHECK(percentages == std::vector<double>{50, 50, 50});
  planned.measured.threads = 0;
  CHECK(roof_percentages(measured, 50) == std::vector<double>{50, 25, 50});
}

TEST_CASE("a one-thread variant whose predicted time exceeds the budget is SKIPPED unmeasured") {
  BenchOptions options = options_for({"gemm:m=512,n=512,k=512"}, {"scalar"});
  options.scalar_run_seconds = 1e-4;
  const BenchResult result = run(options, {});
  CHECK(result.rows.at(0).status == "SKIPPED");
  CHECK(contains(result.rows.at(0).reason, "allowed are 0.0001 s"));
  CHECK_FALSE(result.rows.at(0).plan_ns);
}

TEST_CASE("one-thread variants stand in the group of one thread only, wherever it comes") {
  BenchOptions options = options_for({"gemm:m=8,n=8,k=8"}, {"scalar", "blas"});
  options.threads = {2, 1};
  std::vector<std::string> names;
  for (const Group& group : make_suite(options).groups) {
    for (const GroupCase& c : group.cases) {
      names.push_back(fmt::format("{} {}", group.threads, c.name));
    }
  }
  CHECK(names == std::vector<std::string>{"2 gemm/blas/m=8,n=8,k=8/threads:2/warm",
                                          "1 gemm/scalar/m=8,n=8,k=8/threads:1/warm",
                                          "1 gemm/blas/m=8,n=8,k=8/threads:1/warm"});
  options.threads = {2};
  CHECK(make_suite(options).groups.at(0).cases.size() == 2);
  CHECK(make_suite(options).groups.at(0).cases[0].measured.threads == 1);
}

TEST_CASE(
    "a ladder is one group: every rung once at one thread, threaded ones and the variant at all") {
  BenchOptions options = options_for({"layernorm:rows=8,cols=16"}, {"hwy"});
  options.threads = {1, 2};
  options.ladder = true;
  const std::vector<Group> groups = make_suite(options).groups;
  REQUIRE(groups.size() == 1);
  std::vector<std::string> expected, names;
  const Variant& hwy = *catalogue().variant(groups[0].problem.kernel(), "hwy").variant;
  for (std::size_t step = 0; step <= hwy.ladder.size(); ++step) {
    const bool itself = step == hwy.ladder.size();
    const bool single = !itself && hwy.ladder[step].threads == Threads::one;
    for (const int threads : single ? std::vector{1} : std::vector{1, 2}) {
      expected.push_back(fmt::format("layernorm/hwy/rows=8,cols=16/threads:{}/warm{}", threads,
                                     itself ? "" : fmt::format("/step:{}", step)));
    }
  }
  for (const GroupCase& c : groups[0].cases) names.push_back(c.name);
  CHECK(names == expected);

  options.in_process = true;
  const BenchResult result = run(options, {});
  REQUIRE(result.rows.size() == expected.size());
  std::size_t rungs = 0;
  for (const Row& row : result.rows) {
    CHECK(row.status == "PASSED");
    if (step_of(row)) ++rungs;
  }
  CHECK(rungs == expected.size() - 2);
}

TEST_CASE("rungs of a device stand at the numbers of threads of their variant, each once") {
  const std::vector<CatalogueEntry>& all = catalogue().entries();
  const auto opencl = std::find_if(all.begin(), all.end(), [](const CatalogueEntry& entry) {
    return entry.name == "opencl" && entry.variant->kernel->name == std::string("softmax");
  });
  const bool found = opencl != all.end() && !absent_reason(*opencl);
  const std::string why = found                 ? ""
                          : opencl == all.end() ? "built without OpenCL"
                                                : absent_reason(*opencl).value_or("");
  if (!test::require_or_skip(found, why, test::packages_of("opencl", why))) return;
  BenchOptions options = options_for({"softmax:rows=8,cols=16"}, {"opencl"});
  options.threads = {1, 2};
  options.ladder = true;
  const std::vector<Group> groups = make_suite(options).groups;
  REQUIRE(groups.size() == 1);
  std::map<std::string, std::vector<int>> threads;
  for (const GroupCase& c : groups[0].cases) {
    threads[c.measured.tuning.text()].push_back(c.measured.threads);
  }
  CHECK(threads.size() == opencl->variant->ladder.size() + 1);
  // A CPU's threads, or the whole of another device.
  const bool takes_threads = threads.begin()->second.size() == 2;
  for (const auto& tuning : threads) {
    INFO(tuning.first);
    CHECK(tuning.second == (takes_threads ? std::vector{1, 2} : std::vector{0}));
  }
}

TEST_CASE(
    "a ladder is refused for variants that have none and beside tunings, and skips slow rungs") {
  BenchOptions options = options_for({"gemm:m=300,n=300,k=300"}, {"hwy", "scalar"});
  options.ladder = true;
  CHECK(contains(refusal(options), "'scalar' of gemm has no ladder; with one: hwy"));
  options.variants = {"hwy"};
  options.tunings = {{"hwy", "mc=96"}};
  CHECK(contains(refusal(options), "--tuning has no place"));
  options.tunings.clear();
  options.variants.clear();  // all that have a ladder
  options.scalar_run_seconds = 1e-9;
  options.in_process = true;
  for (const Row& row : run(options, {}).rows) {
    if (row.status == "UNSUPPORTED") {
      CHECK(row.variant == "opencl");
      test::skip_part(row.reason, test::packages_of("opencl", row.reason));
      continue;
    }
    CHECK((row.variant == "hwy" || row.variant == "opencl"));
    CHECK(row.status == (step_of(row) ? "SKIPPED" : "PASSED"));
    if (step_of(row)) CHECK(contains(row.reason, "one run would take about"));
  }
}

TEST_CASE("cases of one variant in one group keep to their own ISA target") {
  BenchOptions options = options_for({"softmax:rows=8,cols=300"}, {"hwy"});
  options.isas = {isa_targets().front(), isa_targets().back()};
  const BenchResult result = run(options, {});
  REQUIRE(result.rows.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(result.rows[i].status == "PASSED");
    CHECK(result.rows[i].isa == options.isas[i]);
  }
}

TEST_CASE("a second placement is measured beside the run's, and has no roof") {
  const int last = machine().cpus.back().number;
  BenchOptions options = options_for({"softmax:rows=8,cols=300"}, {"hwy"});
  options.placements = {"cores", std::to_string(last)};
  const BenchResult result = run(options, {});
  REQUIRE(result.rows.size() == 2);
  CHECK(result.rows[0].placement == "cores");
  CHECK(result.rows[0].affinity == std::to_string(machine().placement.front()));
  CHECK(result.rows[0].roof_pct);
  CHECK(result.rows[1].placement == options.placements[1]);
  CHECK(result.rows[1].affinity == std::to_string(last));
  CHECK_FALSE(result.rows[1].roof_pct);
  CHECK_FALSE(result.rows[1].model_pct);
  for (const Row& row : result.rows) CHECK(row.status == "PASSED");
  options.in_process = true;
  CHECK_THROWS_AS(run(options, {}), Error);
  options.in_process = false;
  options.placements = {"cores", "nowhere"};
  CHECK_THROWS_AS(run(options, {}), Error);
}

TEST_CASE("workers in this process measure the same cases") {
  BenchOptions options =
      options_for({"softmax:rows=8,cols=16", "layernorm:rows=8,cols=16"}, {"scalar", "hwy"});
  options.in_process = true;
  options.threads = {1, 2};
  const BenchResult result = run(options, {});
  REQUIRE(result.rows.size() == 6);
  for (const Row& row : result.rows) {
    CHECK(row.status == "PASSED");
    CHECK(row.affinity.empty());
  }
}

TEST_CASE("empty problems pass and have no speed") {
  const BenchResult result = run(options_for({"gemm:m=0,n=4,k=4"}, {"scalar"}), {});
  CHECK(result.rows.at(0).status == "PASSED");
  CHECK_FALSE(result.rows.at(0).gflops);
  CHECK_FALSE(result.rows.at(0).roof_pct);
  CHECK(result.rows.at(0).p50_ns);
}

TEST_CASE("cold samples are single runs") {
  BenchOptions options = options_for({"layernorm:rows=8,cols=64"}, {"scalar"});
  options.cache = CacheMode::cold;
  const BenchResult result = run(options, {});
  CHECK(result.rows.at(0).status == "PASSED");
  CHECK(result.rows.at(0).cache == "cold");
  CHECK(result.rows.at(0).runs_per_sample == 1);
}

TEST_CASE("wrong options are refused before anything is measured, naming what is allowed") {
  const BenchOptions good = options_for({"gemm:m=8,n=8,k=8"}, {"scalar"});
  CHECK(refusal(good) == "accepted");
  const auto with = [&](auto change) {
    BenchOptions options = good;
    change(options);
    return refusal(options);
  };
  CHECK(contains(with([](auto& o) { o.variants = {"scalr"}; }), "scalar"));
  CHECK(contains(with([](auto& o) { o.threads = {0}; }), "threads=0"));
  CHECK(contains(with([](auto& o) { o.problems.clear(); }), "nothing to measure"));
  CHECK(contains(with([](auto& o) { o.math = "fp23"; }), "fp32"));
  CHECK(contains(with([](auto& o) { o.isas = {"AVX9"}; }), "AVX9"));
  CHECK(contains(with([](auto& o) { o.tunings = {{"scalar", "mc=3"}}; }), "mc"));
  CHECK(contains(with([](auto& o) { o.tunings = {{"hwy", "mc=3"}}; }), "scalar"));
  CHECK(contains(with([](auto& o) { o.timeout = 0; }), "timeout"));
  const auto flag = [&](const std::string& text) {
    return refusal_of([&] {
      BenchOptions options = good;
      options.google_benchmark = parse_google_benchmark_flags({text});
      make_suite(options);
    });
  };
  CHECK(flag("--benchmark_filter=gemm/scalar") == "accepted");
  CHECK(contains(flag("--benchmark_filter=softmax"), "matches no case"));
  CHECK(contains(flag("--benchmark_filter=-gemm"), "matches no case"));
  CHECK(contains(flag("--benchmark_filter=("), "regular expression"));
  CHECK(contains(flag("--benchmark_filtre=x"), "--benchmark_filter"));
  CHECK(contains(flag("--benchmark_repetitions=3"), "unknown"));
  CHECK(contains(flag("--benchmark_format=xml"), "console, json or csv"));
  CHECK(contains(flag("--benchmark_out=/no/such/folder/x"), "cannot be written"));
  CHECK(contains(flag("--benchmark_min_time=soon"), "0.5s"));
  CHECK(contains(flag("--benchmark_min_time=10x"), "0.5s"));
  CHECK(contains(flag("--benchmark_list_tests=perhaps"), "true or false"));
  CHECK(contains(flag("--benchmark_format"), "needs a value"));

  BenchOptions huge = options_for({"gemm:m=4000000,n=4000000,k=8"}, {"scalar"});
  CHECK_THROWS_AS(run(huge, {}), Error);
}

TEST_CASE("min_time is taken with and without its suffix") {
  CHECK(parse_google_benchmark_flags({"--benchmark_min_time=0.5"}).min_time == 0.5);
  CHECK(parse_google_benchmark_flags({"--benchmark_min_time=0.5s"}).min_time == 0.5);
  CHECK_FALSE(parse_google_benchmark_flags({}).prints());
  CHECK(parse_google_benchmark_flags({"--benchmark_counters_tabular"}).prints());
}

TEST_CASE("Google Benchmark's filter chooses cases, and its CSV survives a row without speed") {
  BenchOptions options = options_for({"gemm:m=8,n=8,k=8"}, {"fake-zeros", "scalar", "fake-slow"});
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("bench-test-{}.csv", getpid()))
          .string();
  options.google_benchmark = parse_google_benchmark_flags(
      {"--benchmark_filter=-slow", "--benchmark_out=" + path, "--benchmark_out_format=csv"});
  const BenchResult result = run(options, {});
  REQUIRE(result.rows.size() == 2);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::filesystem::remove(path);
  CHECK(contains(text, "gemm/fake-zeros/m=8,n=8,k=8/threads:1/warm"));
  CHECK(contains(text, "FAILED"));
  CHECK(contains(text, "gemm/scalar/m=8,n=8,k=8/threads:1/warm"));
  CHECK(contains(text, "gflops"));
  CHECK_FALSE(contains(text, "fake-slow"));
}

TEST_CASE("a run measures the suite it is given and makes none of its own") {
  const BenchOptions options =
      options_for({"gemm:m=8,n=8,k=8", "gemm:m=9,n=9,k=9"}, {"scalar", "hwy"});
  Suite suite = make_suite(options);
  REQUIRE(suite.groups.size() == 2);
  suite.groups.pop_back();
  suite.groups.front().cases.pop_back();
  Recorder recorder;
  const BenchResult result = run_bench(options, suite, {&recorder});
  REQUIRE(result.rows.size() == 1);
  CHECK(recorder.rows.size() == 1);
  CHECK(result.rows[0].variant == "scalar");
  CHECK(result.rows[0].shape == "m=8,n=8,k=8");
}

TEST_CASE(
    "the cases of a suite are numbered as the rows, repetition after repetition in one order") {
  BenchOptions options = options_for({"gemm:m=8..16*2,n=8,k=8"}, {"fake-slow", "scalar"});
  options.launches = 3;
  const Suite suite = make_suite(options);
  const std::vector<const GroupCase*> cases = suite.cases();
  REQUIRE(cases.size() == 4);
  Recorder recorder;
  const BenchResult result = run_bench(options, suite, {&recorder});
  REQUIRE(result.rows.size() == 4);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CHECK(cases[i]->row == static_cast<std::int64_t>(i));
    CHECK(suite.names()[i] == cases[i]->name);
    CHECK(result.rows[i].variant == cases[i]->measured.variant);
    CHECK(result.rows[i].shape == cases[i]->measured.problem.shape());
  }
  // Group by group in each repetition, and none begins before the one before has ended.
  std::vector<std::pair<std::int64_t, std::int64_t>> slots;
  for (const Sample& sample : recorder.samples) {
    slots.emplace_back(sample.launch, sample.row / 2);
  }
  CHECK(std::is_sorted(slots.begin(), slots.end()));
  CHECK(slots.front() == std::pair<std::int64_t, std::int64_t>(1, 0));
  CHECK(slots.back() == std::pair<std::int64_t, std::int64_t>(3, 1));
  // Rows come after all samples of their group.
  REQUIRE(recorder.samples_before_row.size() == 4);
  CHECK(recorder.samples_before_row[0] == recorder.samples_before_row[1]);
  CHECK(recorder.samples_before_row[2] == recorder.samples.size());
}

TEST_CASE("an exception of a sink ends the run and reaches the caller") {
  struct Full final : RowSink {
    void on_row(const Row&) override { throw argument_error("disk full"); }
  } full;
  CHECK_THROWS_WITH_AS(
      run(options_for({"gemm:m=8,n=8,k=8", "gemm:m=9,n=9,k=9"}, {"scalar"}), {&full}), "disk full",
      Error);
}

TEST_CASE("every file of shapes is a preset, tells its origin, and each of its lines parses") {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(SHAPES_DIR)) {
    INFO(entry.path().string());
    std::ifstream file(entry.path());
    std::string line;
    std::string head;
    std::size_t shapes = 0;
    bool in_head = true;
    while (std::getline(file, line)) {
      in_head = in_head && line.starts_with("# ");
      if (in_head) head += line.substr(1);
      line = line.substr(0, line.find('#'));
      if (line.find_first_not_of(' ') == std::string::npos) continue;
      line.resize(line.find_last_not_of(' ') + 1);
      shapes += parse_shapes(line, catalogue().kernels()).size();
    }
    CHECK(head.find(" Origin: ") != std::string::npos);
    const std::string name = entry.path().stem().string();
    CHECK(shapes > 0);
    CHECK(preset_problems(name, catalogue().kernels()).size() == shapes);
    files.insert(name);
  }
  const std::vector<std::string> names = preset_names();
  CHECK(files == std::set<std::string>(names.begin(), names.end()));
}

TEST_CASE("presets name themselves; those that verbs take by themselves cover every kernel") {
  for (const std::string& name : preset_names()) {
    INFO(name);
    std::set<std::string> kernels;
    for (const BenchProblem& problem : preset_problems(name, catalogue().kernels())) {
      CHECK(problem.preset == name);
      kernels.insert(problem.problem.kernel().name);
    }
    if (name == "default" || name == "quick" || name == "edge") {
      CHECK(kernels.size() == catalogue().kernels().size());
    }
  }
  CHECK_THROWS_AS(preset_problems("defualt", catalogue().kernels()), Error);
  const Kernel* const gemm[] = {&catalogue().kernel("gemm")};
  for (const BenchProblem& problem : preset_problems("default", gemm)) {
    CHECK(std::string(problem.problem.kernel().name) == "gemm");
  }
}

TEST_CASE(
    "random presets draw the same problems from a seed, of every kernel, within their limits") {
  const Catalogue catalogue = Catalogue::built_in();
  const auto texts = [&](const std::string& name) {
    std::vector<std::string> all;
    for (const BenchProblem& p : preset_problems(name, catalogue.kernels())) {
      const Cost cost = p.problem.kernel().cost(p.problem);
      CHECK(cost.flops <= 4e9);
      CHECK(cost.bytes <= 256 << 20);
      CHECK(p.preset == name);
      all.push_back(p.problem.text());
    }
    return all;
  };
  const std::vector<std::string> drawn = texts("random:40:7");
  CHECK(drawn.size() == 40 * catalogue.kernels().size());
  CHECK(drawn == texts("random:40:7"));
  CHECK(drawn != texts("random:40:8"));
  CHECK(texts("random:3") == texts("random:3:1"));
  CHECK(texts("random:3:1:4096") == texts("random:3"));
  CHECK(texts("random:3:1:8") != texts("random:3"));
  const auto has = [&](const char* word) {
    return std::any_of(drawn.begin(), drawn.end(), [&](const std::string& text) {
      return text.find(word) != std::string::npos;
    });
  };
  for (const char* word : {"trans_a=1", "trans_b=1", "batch=", "causal=1"}) {
    INFO(word);
    CHECK(has(word));
  }
  const std::vector<std::string> formats = texts("formats:200:7:16");
  for (const char* word : {"a_type=", "b_type=q4_1", "epilogue=", "+", "type=bf16"}) {
    INFO(word);
    CHECK(std::any_of(formats.begin(), formats.end(), [&](const std::string& text) {
      return text.find(word) != std::string::npos;
    }));
  }
  for (const char* wrong : {"random:", "random:0", "random:x", "random:3:-1", "random:3:1:0",
                            "random:3:1:1:1", "formats:0"}) {
    INFO(wrong);
    CHECK_THROWS_AS(preset_problems(wrong, catalogue.kernels()), Error);
  }
}

TEST_CASE("progress never falls, and ends at 1") {
  BenchOptions options = options_for({"gemm:m=8..16*2,n=8,k=8"}, {"scalar"});
  std::vector<Progress> seen;
  options.progress = [&](const Progress& progress) { seen.push_back(progress); };
  run(options, {});
  REQUIRE(seen.size() >= 3);
  CHECK(std::is_sorted(seen.begin(), seen.end(),
                       [](const Progress& x, const Progress& y) { return x.done < y.done; }));
  CHECK(seen.back().done == 1);
}
