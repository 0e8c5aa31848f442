// Phases of a run: what the recorder adds up, that it is off when nobody asks, and what becomes of
// profiles in files and explanations. Nothing here depends on speed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/parallel.hpp"
#include "core/phase_recorder.hpp"
#include "core/temporary_folder.hpp"
#include "generated_catalogue.hpp"
#include "io/explain.hpp"
#include "io/explain_text.hpp"
#include "io/phases_file.hpp"
#include "measure/hardware_counters.hpp"
#include "measure/phase_profile.hpp"
#include "measure/worker_protocol.hpp"
#include "tests/gemm_ways.hpp"

using namespace rooflane;

namespace {

// Nanoseconds of a phase by thread.
std::map<int, double> threads_in(const PhaseTimes& times, RunPhase phase) {
  std::map<int, double> threads;
  for (const ThreadPhase& one : times.phases) {
    if (one.phase == phase) threads[one.thread] += one.ns;
  }
  return threads;
}

double times_of(const PhaseTimes& times, RunPhase phase) {
  double sum = 0;
  for (const ThreadPhase& one : times.phases) {
    if (one.phase == phase) sum += one.times;
  }
  return sum;
}

void check_that_threads_spend_no_more_than_there_is(const PhaseTimes& times) {
  std::map<int, double> spent;
  for (const ThreadPhase& one : times.phases) {
    CHECK(one.ns >= 0);
    spent[one.thread] += one.ns;
  }
  // Cores' clocks agree to within a microsecond.
  for (const auto& [thread, ns] : spent) CHECK(ns <= times.wall_ns + 1000);
}

// Events of a thread lie beside or inside each other.
void check_that_events_nest(const PhaseTimes& times) {
  std::map<int, std::vector<PhaseEvent>> open;
  for (const PhaseEvent& event : times.events) {
    CHECK(event.begin_ns <= event.end_ns);
    std::vector<PhaseEvent>& inside = open[event.thread];
    while (!inside.empty() && inside.back().end_ns <= event.begin_ns) inside.pop_back();
    if (!inside.empty()) CHECK(event.end_ns <= inside.back().end_ns);
    inside.push_back(event);
  }
}

void pass_time(std::int64_t ticks) {
  const std::int64_t begin = phase_clock();
  while (phase_clock() - begin < ticks) {
  }
}

}  // namespace

TEST_CASE("a phase inside another takes its time from it") {
  PhaseRecorder recorder(1, 16);
  recorder.begin();
  {
    const PhaseTimer outer(RunPhase::compute);
    for (int i = 0; i < 2; ++i) {
      const PhaseTimer inner(RunPhase::pack);
      const PhaseTimer innermost(RunPhase::wait);
      pass_time(200000);
    }
  }
  recorder.end();
  const PhaseTimes times = recorder.times();
  check_that_threads_spend_no_more_than_there_is(times);
  check_that_events_nest(times);
  CHECK(times_of(times, RunPhase::compute) == 2);  // what the thread does but for others is one too
  CHECK(times_of(times, RunPhase::pack) == 2);
  CHECK(times_of(times, RunPhase::wait) == 2);
  REQUIRE(times.events.size() == 6);
  CHECK(times.events.front().phase == RunPhase::compute);
  CHECK(times.dropped == 0);
  // All the time passed in the innermost phase; its events' lengths say the same.
  double waited = 0, events = 0;
  for (const auto& [thread, ns] : threads_in(times, RunPhase::wait)) waited += ns;
  for (const PhaseEvent& event : times.events) {
    if (event.phase == RunPhase::wait) events += event.end_ns - event.begin_ns;
  }
  CHECK(waited == doctest::Approx(events));
  CHECK(waited >= threads_in(times, RunPhase::pack).at(0));
  CHECK(times.events.front().end_ns == doctest::Approx(times.wall_ns));
}

TEST_CASE("events beyond the buffer are counted, totals hold all") {
  PhaseRecorder recorder(1, 3);
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second recording forgets the first
    recorder.begin();
    for (int i = 0; i < 10; ++i) const PhaseTimer timer(RunPhase::reduce);
    recorder.end();
    const PhaseTimes times = recorder.times();
    CHECK(times.events.size() == 3);
    CHECK(times.dropped == 8);
    CHECK(times_of(times, RunPhase::reduce) == 10);
  }
}

TEST_CASE("where nobody records, nothing is recorded") {
  PhaseRecorder recorder(2, 16);
  recorder.begin();
  recorder.end();
  CHECK(phase_log == nullptr);
  {
    const PhaseTimer timer(RunPhase::compute);
    parallel_for(nullptr, 2, 8, [](std::int64_t, int) {});
  }
  const PhaseTimes times = recorder.times();
  CHECK(times.phases.size() == 1);  // the recording itself
  CHECK(times.events.size() == 1);
}

TEST_CASE("a region's threads start, compute and wait; the calling thread's log is restored") {
  constexpr int threads = 3;
  PhaseRecorder recorder(threads, 64);
  recorder.begin();
  PhaseLog* const mine = phase_log;
  parallel_region(nullptr, threads, [](const Team& team) {
    CHECK(phase_log != nullptr);
    team.barrier();
    // A region inside a region belongs to the phases of the outer one.
    parallel_for(nullptr, 2, 4, [](std::int64_t, int) {});
  });
  CHECK(phase_log == mine);
  parallel_for_static(nullptr, threads, 100, [](std::int64_t, int) {});
  recorder.end();
  const PhaseTimes times = recorder.times();
  check_that_threads_spend_no_more_than_there_is(times);
  check_that_events_nest(times);
  for (const RunPhase phase : {RunPhase::start, RunPhase::compute, RunPhase::wait}) {
    CHECK(threads_in(times, phase).size() == threads);
  }
  CHECK(times_of(times, RunPhase::start) == 2 * threads);
  CHECK(times_of(times, RunPhase::wait) ==
        3 * threads);  // the barrier, and the ends of two regions
}

TEST_CASE("threads beyond the recorder's, and what one thread does alone") {
  PhaseRecorder recorder(1, 16);
  recorder.begin();
  parallel_for(nullptr, 3, 30, [](std::int64_t, int) {});
  parallel_for(nullptr, 1, 30, [](std::int64_t, int) {});
  parallel_region(nullptr, 1, [](const Team& team) { team.barrier(); });
  recorder.end();
  const PhaseTimes times = recorder.times();
  CHECK(threads_in(times, RunPhase::compute).size() == 1);
  CHECK(times_of(times, RunPhase::compute) == 2);  // in the region, and around it
  CHECK(times_of(times, RunPhase::wait) == 1);
}

TEST_CASE("two recordings at once, in two threads, know nothing of each other") {
  const auto record = [](int count, PhaseTimes& times) {
    PhaseRecorder recorder(2, 256);
    recorder.begin();
    for (int i = 0; i < count; ++i) parallel_for(nullptr, 2, 8, [](std::int64_t, int) {});
    recorder.end();
    times = recorder.times();
  };
  PhaseTimes first, second;
  std::thread other([&] { record(5, first); });
  record(9, second);
  other.join();
  CHECK(times_of(first, RunPhase::start) == 2 * 5);
  CHECK(times_of(second, RunPhase::start) == 2 * 9);
}

namespace {

// The same bits with a recorder and without, and these phases.
void check_phases(const Variant& variant, const Problem& problem, const std::string& text,
                  const std::set<RunPhase>& phases) {
  Environment env;
  env.threads = 2;
  const Tuning tuning = complete_tuning(variant, problem, env, parse_tuning(variant, text));
  const OwnedOperands operands(problem, gemm_ways::seed, 1);
  const auto plan = make_plan(variant, problem, tuning, env, operands.all());
  plan->bind(operands.all());
  const View& output = operands.output();
  const auto run = [&] {
    std::fill_n(output.f32(), output.elements(), 0.0f);
    plan->run();
    return std::vector<float>(output.f32(), output.f32() + output.elements());
  };
  INFO(problem.text(), " ", tuning.text());
  const std::vector<float> plain = run();
  PhaseRecorder recorder(2, 4096);
  recorder.begin();
  const std::vector<float> recorded = run();
  recorder.end();
  CHECK(std::memcmp(plain.data(), recorded.data(), plain.size() * sizeof(float)) == 0);
  const PhaseTimes times = recorder.times();
  check_that_threads_spend_no_more_than_there_is(times);
  check_that_events_nest(times);
  for (const RunPhase phase : phases) CHECK_MESSAGE(times_of(times, phase) > 0, name_of(phase));
}

}  // namespace

TEST_CASE("a plan computes the same bits with a recorder, and says what it did") {
  // Both operands packed, with columns that fill no micro-tile; parts of k that are added up.
  check_phases(
      gemm::hwy, gemm_ways::gemm_problem("m=512,n=181,k=512"),
      "path=4,transposed=0,threads=2,mc=512,kc=512,nc=192,kb=512,pack_a=1,order=0,m_parts=2",
      {RunPhase::compute, RunPhase::tail, RunPhase::pack, RunPhase::start, RunPhase::wait});
  check_phases(gemm::hwy, gemm_ways::gemm_problem("m=40,n=64,k=9000"),
               "path=3,transposed=0,threads=2,k_parts=2",
               {RunPhase::compute, RunPhase::reduce, RunPhase::wait});
  // Queries transposed and outputs transposed back; keys split among threads, with the parts
  // joined.
  const Kernel* const kernels[] = {&attention::kernel};
  check_phases(attention::hwy,
               parse_problem("attention:batch=1,heads=4,q_len=256,kv_len=256,head_dim=64", kernels),
               "", {RunPhase::pack, RunPhase::compute, RunPhase::store});
  check_phases(attention::hwy,
               parse_problem("attention:batch=1,heads=1,q_len=1,kv_len=20000,head_dim=64", kernels),
               "", {RunPhase::compute, RunPhase::reduce});
}

namespace {

PhaseProfile example_profile() {
  PhaseProfile profile;
  profile.runs = 8;
  profile.run_ns = 1000;
  profile.plain_ns = 990;
  profile.phases = {{0, RunPhase::pack, 100, 2},    {0, RunPhase::compute, 700, 1},
                    {0, RunPhase::wait, 150, 1.5},  {1, RunPhase::start, 50, 1},
                    {1, RunPhase::compute, 800, 1}, {1, RunPhase::tail, 100, 4}};
  profile.counters = {{"cycles", 4e6}, {"instructions", 1e7}};
  return profile;
}

void check_equal(const PhaseProfile& x, const PhaseProfile& y) {
  CHECK(x.runs == y.runs);
  CHECK(x.run_ns == y.run_ns);
  CHECK(x.plain_ns == y.plain_ns);
  REQUIRE(x.phases.size() == y.phases.size());
  for (std::size_t i = 0; i < x.phases.size(); ++i) {
    CHECK(x.phases[i].thread == y.phases[i].thread);
    CHECK(x.phases[i].phase == y.phases[i].phase);
    CHECK(x.phases[i].ns == y.phases[i].ns);
    CHECK(x.phases[i].times == y.phases[i].times);
  }
  CHECK(x.counters == y.counters);
}

Row example_row() {
  Row row;
  row.kernel = "gemm";
  row.shape = "m=8,n=8,k=8";
  row.variant = "hwy";
  row.math = "fp32";
  row.cache = "warm";
  row.status = "PASSED";
  row.threads = 4;
  row.p50_ns = 1000;
  row.roof_pct = 30;
  row.model_pct = 32;
  row.bound = "compute";
  return row;
}

double points_of(const RoofLoss& loss, const std::string& name) {
  for (const LostPart& part : loss.parts) {
    if (part.name == name) return part.points;
  }
  FAIL("no part ", name);
  return 0;
}

}  // namespace

TEST_CASE("names of phases are read back") {
  for (int p = 0; p < phase_count; ++p) {
    const auto phase = static_cast<RunPhase>(p);
    CHECK(parse_phase(name_of(phase)) == phase);
  }
  CHECK_FALSE(parse_phase("packing"));
}

TEST_CASE("a profile survives the way through its file and through the worker's protocol") {
  const TemporaryFolder folder;
  const std::string path = phases_path(folder / "rows.csv");
  const PhaseProfile profile = example_profile();
  {
    PhasesWriter writer(path);
    writer.append(3, profile);
    writer.append(5, profile);
    std::ofstream(path, std::ios::app) << "7,0,pack,1";  // a killed run
  }
  const std::map<std::int64_t, PhaseProfile> read = read_phases(path);
  REQUIRE(read.size() == 2);
  check_equal(read.at(3), profile);
  check_equal(read.at(5), profile);

  PhaseProfile traced = profile;
  traced.events = {{1, RunPhase::compute, 10, 30}, {1, RunPhase::tail, 12, 20}};
  traced.dropped = 2;
  const auto answered = protocol::profile_from(
      nlohmann::json::parse(protocol::line_of(protocol::to_json(std::optional(traced)))));
  REQUIRE(answered);
  check_equal(*answered, traced);
  REQUIRE(answered->events.size() == 2);
  CHECK(answered->events[1].phase == RunPhase::tail);
  CHECK(answered->events[1].begin_ns == 12);
  CHECK(answered->dropped == 2);
  CHECK_FALSE(protocol::profile_from(
      nlohmann::json::parse(protocol::line_of(protocol::to_json(std::optional<PhaseProfile>())))));
}

TEST_CASE("the parts of what is lost add up, idle threads and unnamed time among them") {
  const auto loss = roof_loss(example_row(), example_profile());
  REQUIRE(loss);
  CHECK(loss->reached == 30);
  // A quarter of a point per 10 ns: four threads, 1000 ns each.
  CHECK(points_of(*loss, "packing") == doctest::Approx(2.5));
  CHECK(points_of(*loss, "waiting") == doctest::Approx(3.75));
  CHECK(points_of(*loss, "thread start") == doctest::Approx(1.25));
  CHECK(points_of(*loss, "idle") == doctest::Approx(50));
  CHECK(points_of(*loss, "outside") == doctest::Approx(2.5));
  CHECK(points_of(*loss, "exp, unfused") == doctest::Approx(2));
  CHECK(points_of(*loss, "computing") == doctest::Approx(40 - 30 - 2));
  CHECK(loss->tail_pct == doctest::Approx(2.5));
  CHECK(loss->computing_pct == doctest::Approx(75));
  CHECK(loss->recorder_pct == doctest::Approx(100.0 * 10 / 990));
  CHECK(std::string(loss->largest().name) == "idle");
  double sum = 0;
  for (const LostPart& part : loss->parts) sum += part.points;
  CHECK(sum == doctest::Approx(70));
  Row no_roof = example_row();
  no_roof.roof_pct = std::nullopt;
  CHECK_FALSE(roof_loss(no_roof, example_profile()));
  CHECK_FALSE(roof_loss(example_row(), PhaseProfile()));
}

TEST_CASE("computing may lose less than nothing where other phases did its work") {
  Row row = example_row();
  row.roof_pct = 45;
  row.model_pct = 45;
  const auto loss = roof_loss(row, example_profile());
  REQUIRE(loss);
  CHECK(points_of(*loss, "computing") == doctest::Approx(-5));
  const PhaseProfile profile = example_profile();
  const ExplainedRow explained[] = {{&row, &profile}};
  const std::string text = explain_text(explained, false);
  CHECK(text.find("below 0") != std::string::npos);
  CHECK(text.find("instructions a cycle") != std::string::npos);
  CHECK(text.find("storing") == std::string::npos);  // nothing but zeros
}

TEST_CASE("samples with and without a recorder alternate, each with its operands prepared") {
  int runs = 0, prepared = 0;
  const PhaseProfile profile = profile_phases(
      [&] {
        ++runs;
        parallel_for(nullptr, 2, 4, [](std::int64_t, int) {});
      },
      [&] { ++prepared; }, {.threads = 2, .runs = 3, .events = 100});
  CHECK(prepared % 2 == 0);
  CHECK(runs == 3 * prepared);
  CHECK(profile.runs == 3);
  CHECK(profile.run_ns > 0);
  CHECK(profile.plain_ns > 0);
  const auto runs_seen =
      std::count_if(profile.events.begin(), profile.events.end(),
                    [](const PhaseEvent& e) { return e.phase == RunPhase::run; });
  CHECK(runs_seen == 3);
  CHECK(std::none_of(profile.phases.begin(), profile.phases.end(),
                     [](const ThreadPhase& p) { return p.phase == RunPhase::run; }));
}

TEST_CASE("hardware counters count, or say why there are none") {
  HardwareCounters counters;
  if (counters.absent()) {
    CHECK_FALSE(counters.absent()->empty());
    CHECK(counters.names().empty());
    CHECK(counters.counts().empty());
    return;
  }
  counters.start();
  pass_time(1000000);
  counters.stop();
  const auto counts = counters.counts();
  CHECK(counts.size() == counters.names().size());
  CHECK(std::any_of(counts.begin(), counts.end(), [](const auto& c) { return c.second > 0; }));
}
